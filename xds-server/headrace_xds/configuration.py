"""The configuration: from files to what is in effect, and the last good one when they are bad.

Everything is checked before anything changes. A configuration with one error changes nothing but
the list of problems.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace import ir
from headrace.config import edit
from headrace.config.analyze import analyze, usable
from headrace.config.load import Loaded, Placed, load
from headrace.config.problems import Problem, render
from headrace.config.schema import Object
from headrace.resolve import resolve
from headrace_xds import lastgood
from headrace_xds.control import Compiled
from headrace_xds.lastgood import LastGood
from headrace_xds.source.files import Folder, read_folder, write_file
from headrace_xds.translate import translate
from headrace_xds.translate.fragments import FragmentCache

LAST_GOOD_FILE: Final = "last-good.json"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checked:
    """Every problem in some files, and what they mean unless one problem is an error."""

    objects: tuple[Placed, ...]
    problems: tuple[Problem, ...]
    compiled: Compiled | None
    failure: str = ""
    """A defect of this program met on the way; the configuration is refused, traffic goes on."""


def check(files: Mapping[str, str], cache: FragmentCache) -> Checked:
    """Load, analyze, resolve and translate; nothing is put into effect and nothing is raised."""
    try:
        return _check(files, cache)
    except Exception as error:
        log.exception("the configuration cannot be checked")
        return Checked((), (), None, failure=f"internal error: {error!r}")


def _check(files: Mapping[str, str], cache: FragmentCache) -> Checked:
    loaded = load(sorted(files.items()))
    problems = analyze(loaded)
    if not usable(problems):
        return Checked(loaded.objects, problems, None)
    return Checked(loaded.objects, problems, _compile(loaded, cache))


def _compile(loaded: Loaded, cache: FragmentCache) -> Compiled:
    mesh = resolve(loaded)
    return Compiled(
        mesh=mesh,
        resources={gateway.name: translate(mesh, gateway, cache) for gateway in _gateways(mesh)},
    )


def _gateways(mesh: ir.Mesh) -> list[ir.Gateway]:
    return [gateway for region in mesh.regions for gateway in region.gateways]


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
        self._path = state_dir / LAST_GOOD_FILE
        self._kept = LastGood()
        self._effect = effect
        self._wall_s = wall_s
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
            checked = await asyncio.to_thread(check, self._kept.files, self._cache)
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
            checked = await asyncio.to_thread(check, folder.files, self._cache)
            await self._take(folder, checked)

    async def apply(self, text: str, *, dry_run: bool) -> tuple[Checked, dict[str, str]]:
        """Put documents into the folder; the outcome and a result for each of their objects."""
        request = await asyncio.to_thread(load, [("request", text)])
        if not request.ok:
            return Checked((), request.problems, None), {}
        async with self._busy:
            folder = await self._read()
            changed = await asyncio.to_thread(edit.upsert, folder.files, text)
            files = _merged(folder.files, changed)
            checked = await asyncio.to_thread(check, files, self._cache)
            results = await asyncio.to_thread(_results, folder, request, checked)
            if checked.compiled is not None and not dry_run:
                await self._write(folder, files, checked)
            return checked, results

    async def delete(self, kind: str, name: str, *, dry_run: bool) -> Checked:
        """Take an object out of the folder; NotFoundError where there is none."""
        async with self._busy:
            folder = await self._read()
            changed = await asyncio.to_thread(edit.remove, folder.files, kind, name)
            files = _merged(folder.files, changed)
            checked = await asyncio.to_thread(check, files, self._cache)
            if checked.compiled is not None and not dry_run:
                await self._write(folder, files, checked)
            return checked

    async def _read(self) -> Folder:
        folder = await asyncio.to_thread(read_folder, self.folder_path)
        if folder.unreadable:
            raise Unwritable("; ".join(folder.unreadable))
        return folder

    async def _write(self, folder: Folder, files: Mapping[str, str], checked: Checked) -> None:
        for name, text in files.items():
            if folder.files.get(name) != text:
                await asyncio.to_thread(write_file, self.folder_path / name, text)
        for name in folder.files.keys() - files.keys():
            await asyncio.to_thread((self.folder_path / name).unlink)
        await self._take(Folder(files), checked)

    async def _take(self, folder: Folder, checked: Checked) -> None:
        self.folder = folder
        self.problems = checked.problems
        self.unreadable = (*folder.unreadable, *filter(None, (checked.failure,)))
        self.accepted = checked.compiled is not None and not self.unreadable
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
        await self._keep(lastgood.succeed(self._kept, folder.files, objects))
        self.objects = checked.objects
        self.last_success_s = self._wall_s()
        log.info("configuration generation %d: %d objects", self.generation, len(objects))

    async def _keep(self, kept: LastGood) -> None:
        """Remember what is in effect, on disk if the disk lets us."""
        changed, self._kept = kept != self._kept, kept
        if not changed:
            return
        try:
            await asyncio.to_thread(lastgood.save, self._path, kept)
        except OSError as error:
            log.error("the last good configuration cannot be kept in %s: %s", self._path, error)


def _complain(unreadable: Sequence[str], problems: Sequence[Problem], *, serving: int) -> None:
    for reason in unreadable:
        log.error("configuration: %s", reason)
    for problem in problems:
        log.error("%s", render(problem))
    log.error("configuration refused; generation %d stays in effect", serving)


def _merged(files: Mapping[str, str], changed: Mapping[str, str]) -> dict[str, str]:
    """Files after a change; one that nothing is left of is gone."""
    return {name: text for name, text in {**files, **changed}.items() if text}


def _results(folder: Folder, request: Loaded, checked: Checked) -> dict[str, str]:
    """``created``, ``configured`` or ``unchanged`` for every object of a request."""
    before = {key_of(p.object): p.object for p in load(sorted(folder.files.items())).objects}
    after = {key_of(placed.object): placed.object for placed in checked.objects}
    results = {}
    for placed in request.objects:
        key = key_of(placed.object)
        if key not in before:
            results[key] = "created"
        else:
            results[key] = "unchanged" if before[key] == after.get(key) else "configured"
    return results
