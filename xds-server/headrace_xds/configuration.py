"""The configuration: from files to what is in effect, and the last good one when they are bad.

Everything is checked before anything changes. A configuration with one error changes nothing but
the list of problems.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from headrace.config import edit
from headrace.config.load import Loaded, Placed, load
from headrace.config.problems import Problem, render
from headrace.config.schema import Object
from headrace.config.secrets import SecretState
from headrace_xds import lastgood
from headrace_xds.compiler import Checked, check
from headrace_xds.control import Compiled
from headrace_xds.gate.envoy import NoVerdict
from headrace_xds.gate.gate import Gate
from headrace_xds.lastgood import LastGood
from headrace_xds.revisions import Authorship, Revision, Revisions
from headrace_xds.source.files import Folder, owner, read_folder, write_file
from headrace_xds.translate.fragments import FragmentCache

LAST_GOOD_FILE: Final = "last-good.json"
NOBODY: Final = Authorship("", "api")
"""Of an edit whose author does not say who they are."""

log = logging.getLogger(__name__)


def key_of(item: Object) -> str:
    """``Kind/name`` of an object."""
    return f"{type(item).__name__}/{item.metadata.name}"


class Unwritable(Exception):
    """The folder holds something that must be corrected by hand before it can be written to."""


class Configuration:
    """A folder, what is wrong with it now, and the configuration that is in effect."""

    def __init__(
        self,
        folder: Path,
        state_dir: Path,
        *,
        effect: Callable[[Compiled], None],
        wall_s: Callable[[], float],
        gate: Gate | None = None,
        secrets: Callable[[], Mapping[str, SecretState] | None] = lambda: None,
        revisions: Revisions | None = None,
    ) -> None:
        self.folder_path = folder
        self.problems: tuple[Problem, ...] = ()
        self.unreadable: tuple[str, ...] = ()
        self.accepted = False
        """Whether what the folder holds now is what is in effect."""
        self.objects: tuple[Placed, ...] = ()
        self.rejections = 0
        self.last_success_s = 0.0
        """When a configuration last came into effect, on the wall clock."""
        self.folder = Folder({})
        self.undecided = asyncio.Event()
        """Set while the gate has given no verdict on what the folder holds."""
        self._path = state_dir / LAST_GOOD_FILE
        self._kept = LastGood()
        self._effect = effect
        self._gate = gate
        self._wall_s = wall_s
        self._secrets = secrets
        self.revisions = revisions
        self._cache = FragmentCache()
        self._busy = asyncio.Lock()

    def __repr__(self) -> str:
        """One line for operators."""
        return (
            f"<Configuration generation={self.generation} objects={len(self.objects)} "
            f"accepted={self.accepted} problems={len(self.problems)}>"
        )

    @property
    def generation(self) -> int:
        """Rises with every configuration that is put into effect; 0 before the first."""
        return self._kept.generation

    def generation_of(self, item: Object) -> int:
        """How often the meaning of an object in effect has changed."""
        kept = self._kept.objects.get(key_of(item))
        return kept.generation if kept else 0

    async def start(self) -> None:
        """Take the folder, or the last good configuration where the folder has errors."""
        self._kept = await asyncio.to_thread(lastgood.load, self._path)
        await self.reload(await asyncio.to_thread(read_folder, self.folder_path))
        if self.accepted or not self._kept.files:
            return
        async with self._busy:
            checked = await asyncio.to_thread(check, self._kept.files, self._cache, self._secrets())
            if checked.compiled is None:
                log.error("the last good configuration does not pass this version's checks")
                return
            log.warning("serving the last good configuration, generation %d", self.generation)
            self.objects = checked.objects
            self._effect(checked.compiled)

    async def reload(self, folder: Folder, *, instead_of: Folder | None = None) -> None:
        """Put the folder into effect, or say what is wrong with it.

        A reading that was made before somebody wrote through the admin API says nothing of what is
        there now: with ``instead_of``, it counts only while that is what is known.
        """
        async with self._busy:
            if instead_of is not None and self.folder is not instead_of:
                return
            checked = await self._check(folder.files)
            by = await asyncio.to_thread(self._owner, folder)
            await self._take(folder, checked, by)

    async def apply(
        self, text: str, *, by: Authorship = NOBODY, dry_run: bool
    ) -> tuple[Checked, dict[str, str]]:
        """Put documents into the folder; the outcome and a result for each of their objects."""
        request = await asyncio.to_thread(load, [("request", text)])
        if not request.ok:
            return Checked((), request.problems, None), {}
        async with self._busy:
            folder = await self._read()
            changed = await asyncio.to_thread(edit.upsert, folder.files, text)
            files = _merged(folder.files, changed)
            before = await asyncio.to_thread(self._objects, folder)
            checked = await self._check(files)
            results = _results(before, request, checked)
            if checked.compiled is not None and not dry_run:
                await self._write(folder, files, checked, by)
            return checked, results

    async def delete(
        self, kind: str, name: str, *, by: Authorship = NOBODY, dry_run: bool
    ) -> Checked:
        """Take an object out of the folder; NotFoundError where there is none."""
        async with self._busy:
            folder = await self._read()
            changed = await asyncio.to_thread(edit.remove, folder.files, kind, name)
            files = _merged(folder.files, changed)
            checked = await self._check(files)
            if checked.compiled is not None and not dry_run:
                await self._write(folder, files, checked, by)
            return checked

    async def rollback(
        self, revision: Revision, *, by: Authorship = NOBODY, dry_run: bool
    ) -> Checked:
        """Put the files of a revision in place of those of the folder, checked as any edit."""
        async with self._busy:
            folder = await self._read()
            checked = await self._check(revision.files)
            if checked.compiled is not None and not dry_run:
                await self._write(folder, revision.files, checked, by)
            return checked

    async def _check(self, files: Mapping[str, str]) -> Checked:
        """Everything that is known to be wrong with some files, a real Envoy's opinion included."""
        checked = await asyncio.to_thread(check, files, self._cache, self._secrets())
        if self._gate is None or checked.compiled is None:
            return checked
        compiled = checked.compiled
        try:
            problems = await self._gate.judge(compiled.mesh, compiled.resources)
        except NoVerdict as reason:
            failure = f"the gate: {reason}"
            return Checked(checked.objects, checked.problems, None, failure, undecided=True)
        if not problems:
            return checked
        return Checked(checked.objects, (*checked.problems, *problems), None)

    def _objects(self, folder: Folder) -> dict[str, Object]:
        read = load(sorted(folder.files.items()), self._cache.readings)
        return {key_of(placed.object): placed.object for placed in read.objects}

    async def _read(self) -> Folder:
        folder = await asyncio.to_thread(read_folder, self.folder_path)
        if folder.unreadable:
            raise Unwritable("; ".join(folder.unreadable))
        return folder

    def _owner(self, folder: Folder) -> Authorship:
        """Who owns the file that was written last, as far as the system says."""
        edited = [n for n, text in folder.files.items() if self.folder.files.get(n) != text]
        return Authorship(owner(self.folder_path, edited), "folder", ", ".join(sorted(edited)))

    async def _write(
        self, folder: Folder, files: Mapping[str, str], checked: Checked, by: Authorship
    ) -> None:
        for name, text in files.items():
            if folder.files.get(name) != text:
                await asyncio.to_thread(write_file, self.folder_path / name, text)
        for name in folder.files.keys() - files.keys():
            await asyncio.to_thread((self.folder_path / name).unlink)
        await self._take(Folder(files), checked, by)

    async def _take(self, folder: Folder, checked: Checked, by: Authorship) -> None:
        self.folder = folder
        self.problems = checked.problems
        self.unreadable = (*folder.unreadable, *filter(None, (checked.failure,)))
        self.accepted = checked.compiled is not None and not self.unreadable
        if checked.undecided:
            self.undecided.set()
        else:
            self.undecided.clear()
        if checked.compiled is None or self.unreadable:
            self.rejections += 1
            _complain(self.unreadable, checked.problems, serving=self.generation)
            return
        try:
            self._effect(checked.compiled)
        except Exception as error:
            log.exception("the configuration cannot be put into effect")
            self.accepted, self.unreadable = False, (f"internal error: {error!r}",)
            self.rejections += 1
            return
        objects = {key_of(placed.object): placed.object for placed in checked.objects}
        await self._keep(lastgood.succeed(self._kept, folder.files, objects), by)
        self.objects = checked.objects
        self.last_success_s = self._wall_s()
        log.info("configuration generation %d: %d objects", self.generation, len(objects))

    async def _keep(self, kept: LastGood, by: Authorship) -> None:
        """Remember what is in effect, on disk if the disk lets us."""
        changed, risen = kept != self._kept, kept.generation != self.generation
        self._kept = kept
        if not changed:
            return
        try:
            await asyncio.to_thread(lastgood.save, self._path, kept)
        except OSError as error:
            log.error("the last good configuration cannot be kept in %s: %s", self._path, error)
        if not risen or self.revisions is None:
            return
        at_s = self._wall_s()
        revision = Revision(number=kept.generation, at_s=at_s, by=by, files=kept.files)
        try:
            await asyncio.to_thread(self.revisions.add, revision)
        except sqlite3.Error as error:
            log.error("revision %d cannot be kept: %s", revision.number, error)


def _complain(unreadable: Sequence[str], problems: Sequence[Problem], *, serving: int) -> None:
    for reason in unreadable:
        log.error("configuration: %s", reason)
    for problem in problems:
        log.error("%s", render(problem))
    log.error("configuration refused; generation %d stays in effect", serving)


def _merged(files: Mapping[str, str], changed: Mapping[str, str]) -> dict[str, str]:
    """Files after a change; one that nothing is left of is gone."""
    return {name: text for name, text in {**files, **changed}.items() if text}


def _results(before: Mapping[str, Object], request: Loaded, checked: Checked) -> dict[str, str]:
    """``created``, ``configured`` or ``unchanged`` for every object of a request."""
    after = {key_of(placed.object): placed.object for placed in checked.objects}
    results = {}
    for placed in request.objects:
        key = key_of(placed.object)
        if key not in before:
            results[key] = "created"
        else:
            results[key] = "unchanged" if before[key] == after.get(key) else "configured"
    return results
