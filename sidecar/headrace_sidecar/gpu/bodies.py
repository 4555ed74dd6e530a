"""The memory that request bodies may take on a node, over all its front doors."""

from collections.abc import Iterator
from contextlib import contextmanager

from headrace import limits
from headrace.refusals import Refusal, Refused


class Bodies:
    """The memory that bodies may take; a body counts from its first byte until it is answered."""

    def __init__(self, capacity_bytes: int = limits.BODIES_BYTES) -> None:
        self.capacity_bytes = capacity_bytes
        self.held_bytes = 0

    def __repr__(self) -> str:
        """One line for operators."""
        return f"Bodies({self.held_bytes}/{self.capacity_bytes} bytes)"

    @contextmanager
    def hold(self, size_bytes: int) -> Iterator[None]:
        """Count a body for as long as it is needed; Refused where there is no room."""
        if self.held_bytes + size_bytes > self.capacity_bytes:
            raise Refused(Refusal.OVERLOADED, "the node holds too many request bodies")
        self.held_bytes += size_bytes
        try:
            yield
        finally:
            self.held_bytes -= size_bytes
