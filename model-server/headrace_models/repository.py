"""Triton's model repository on disk: each model version is a link to one complete folder.

A folder is written elsewhere and named by its content, then the link is moved to it in one step, so
Triton never sees half a model and a restart finds everything that was placed.
"""

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from headrace import limits, names
from headrace.assignment import Assignment
from headrace_models import pbtxt
from headrace_models.catalogue import Executor
from headrace_models.failure import Failure
from headrace_models.layout import Layout, link

_ASSIGNMENT = "assignment.json"
_CONFIG = "config.pbtxt"
_PROGRAM = "model.py"
_DIGEST_LENGTH = 16


def models_dir() -> Path:
    """Folder of the executors' Triton programs: beside this package, or inside it in a wheel."""
    package = Path(__file__).parent
    inside = package / "models"
    return inside if inside.is_dir() else package.parent / "models"


def render(
    assignment: Assignment, executor: Executor, parameters: Mapping[str, str], program: bytes
) -> dict[str, bytes]:
    """Files of a model version's folder, by path in it. Pure."""
    return {
        _ASSIGNMENT: msgspec.json.encode(_steady(assignment)),
        _CONFIG: pbtxt.config(assignment, executor, parameters).encode(),
        f"1/{_PROGRAM}": program,
    }


class Repository:
    """The repository of one state directory."""

    def __init__(self, layout: Layout, programs: Path) -> None:
        self._layout = layout
        self._programs = programs
        self._placed = {
            file.parent.name: msgspec.json.decode(file.read_bytes(), type=Assignment)
            for file in layout.repository_dir.glob(f"*/{_ASSIGNMENT}")
        }

    def __repr__(self) -> str:
        return f"Repository({len(self._placed)} of {limits.PLACED_VERSIONS} versions)"

    def placed(self) -> tuple[Assignment, ...]:
        """What Triton can be told to load, by name."""
        return tuple(assignment for _, assignment in sorted(self._placed.copy().items()))

    def place(
        self, assignment: Assignment, executor: Executor, parameters: Mapping[str, str]
    ) -> str:
        """Write the version's folder and link to it; its name in Triton."""
        name = names.triton_model(assignment.model, assignment.version)
        self._check_room(name)
        program = (self._programs / executor.name / _PROGRAM).read_bytes()
        files = render(assignment, executor, parameters, program)
        folder = self._layout.placed_dir / f"{name}-{_digest(files)}"
        if not folder.is_dir():
            _write(folder, files)
        place = self._layout.repository_dir / name
        before = place.resolve() if place.is_symlink() else None
        link(place, folder)
        self._placed[name] = _steady(assignment)
        if before is not None and before != folder:
            shutil.rmtree(before, ignore_errors=True)
        return name

    def remove(self, model: str, version: int) -> None:
        """Take the version away; nothing to do when it is not there."""
        name = names.triton_model(model, version)
        place = self._layout.repository_dir / name
        if place.is_symlink():
            folder = place.resolve()
            place.unlink()
            self._placed.pop(name, None)
            shutil.rmtree(folder, ignore_errors=True)

    def sweep(self) -> None:
        """Delete folders that no link leads to: an interrupted write or removal."""
        linked = {place.resolve() for place in self._layout.repository_dir.iterdir()}
        for folder in self._layout.placed_dir.iterdir():
            if folder.resolve() not in linked:
                shutil.rmtree(folder)

    def _check_room(self, name: str) -> None:
        if name not in self._placed and len(self._placed) >= limits.PLACED_VERSIONS:
            raise Failure(
                "too_many_versions",
                f"there are {len(self._placed)} model versions here already",
                where=str(self._layout.repository_dir),
                remedy="remove a version from this node first",
                permanent=False,
            )


def _steady(assignment: Assignment) -> Assignment:
    """The assignment without what changes when the same is offered again."""
    return msgspec.structs.replace(assignment, attempt=0)


def _digest(files: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for path, content in sorted(files.items()):
        digest.update(f"{path} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:_DIGEST_LENGTH]


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    fresh = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    for path, content in files.items():
        place = fresh / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    fresh.rename(folder)
