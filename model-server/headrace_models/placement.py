"""Placing model versions: weights made ready, folder written, the golden answer handed out."""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.assignment import Assignment
from headrace_models import catalogue, golden
from headrace_models.failure import Failure
from headrace_models.repository import Repository


@contextlib.contextmanager
def _disk_failures() -> Iterator[None]:
    """What the disk refuses now it may take later."""
    try:
        yield
    except OSError as error:
        raise Failure(
            "state_dir_not_writable",
            str(error),
            where=str(error.filename or "the state directory"),
            remedy="free space on the disk of --state-dir",
            permanent=False,
        ) from error


class Weights(Protocol):
    """Where weights come from."""

    async def ready(self, artifact: str) -> Mapping[str, str]:
        """Verified files of an artifact, by the parameter they are given to the executor as."""
        ...


@dataclass(frozen=True, slots=True)
class Placed:
    """Answer to a placement."""

    triton_model: str
    golden: dict[str, Any]


class Placement:
    """What this model server holds for Triton to load."""

    def __init__(self, repository: Repository, weights: Weights) -> None:
        self._repository = repository
        self._weights = weights
        self._writing = asyncio.Lock()

    async def place(self, assignment: Assignment) -> Placed:
        """Make the version loadable. Raises Failure; the same again changes nothing."""
        executor = catalogue.check(assignment)
        parameters = {"threads": str(assignment.threads)}
        if executor.artifacts:
            parameters["network"] = assignment.artifact
            parameters |= await self._weights.ready(assignment.artifact)
        async with self._writing:
            with _disk_failures():
                name = await asyncio.to_thread(
                    self._repository.place, assignment, executor, parameters
                )
        return Placed(triton_model=name, golden=golden.golden(assignment))

    async def remove(self, model: str, version: int) -> None:
        """Take the version away."""
        async with self._writing:
            await asyncio.to_thread(self._repository.remove, model, version)

    def placed(self) -> tuple[Assignment, ...]:
        """Every version that can be loaded."""
        return self._repository.placed()
