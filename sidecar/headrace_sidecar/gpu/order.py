"""What a keeper is told, what it can have done, and who hears what became of it."""

import asyncio
from dataclasses import dataclass
from typing import Protocol

import msgspec

from headrace import limits
from headrace.assignment import Assignment
from headrace_sidecar.gpu.agent import Golden, Placed
from headrace_sidecar.gpu.lifecycle import State


@dataclass(frozen=True, slots=True)
class Order:
    """What the control server wants of a version; ``assignment`` None: let go of it.

    ``nonce`` is what to answer with, None when nobody waits for an answer.
    """

    nonce: str | None
    resource_version: str
    assignment: Assignment | None
    adopted: bool = False
    """It was ready under this very order before: what Triton still holds need not be loaded."""


class Steps(Protocol):
    """What a keeper can have done; see ``steps.py``."""

    @property
    def incarnation(self) -> int:
        """Which Triton this is."""

    @property
    def up(self) -> bool:
        """Whether Triton answers."""

    async def place(self, assignment: Assignment) -> Placed:
        """Have the repository folder written."""

    async def holds(self, assignment: Assignment) -> bool:
        """Whether Triton has it loaded."""

    async def load(self, assignment: Assignment) -> None:
        """Load into Triton."""

    async def check(self, assignment: Assignment, question: Golden) -> None:
        """Ask the golden question."""

    async def unload(self, assignment: Assignment) -> None:
        """Unload from Triton."""

    async def discard(self, assignment: Assignment) -> None:
        """Have the repository folder deleted."""

    async def restart_triton(self) -> bool:
        """Ask for a new Triton."""


class Kept(Protocol):
    """The version that a report is about."""

    @property
    def name(self) -> str:
        """Resource name."""

    @property
    def assignment(self) -> Assignment:
        """Content that is being worked on."""


class Reporter(Protocol):
    """Who hears of what became of orders."""

    def kept(self, keeper: Kept, order: Order) -> None:
        """The version is ready as ordered."""

    def refused(self, keeper: Kept, order: Order, reason: str) -> None:
        """The order was given up."""

    def gone(self, keeper: Kept, order: Order) -> None:
        """The version was let go."""

    def entered(self, keeper: Kept, state: State) -> None:
        """The version is in another state."""


class Lanes:
    """How many versions are worked on at once: new orders in one lane, repairs in the other."""

    def __init__(self) -> None:
        self.orders = asyncio.Semaphore(limits.ASSIGNMENTS_IN_FLIGHT)
        self.repairs = asyncio.Semaphore(limits.REPAIRS_IN_FLIGHT)


def same_content(one: Assignment, other: Assignment) -> bool:
    """Whether two assignments ask for the same; which attempt it is, is no content."""
    return msgspec.structs.replace(one, attempt=other.attempt) == other
