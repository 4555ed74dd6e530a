"""The memory that request bodies may take on a node, over all its front doors."""

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

    def hold(self, size_bytes: int) -> "Hold":
        """Count a body for as long as the block runs; Refused where there is no room."""
        return Hold(self, size_bytes)


class Hold:
    """One body that is counted. (A class, because a generator costs more than the count.)"""

    __slots__ = ("_bodies", "_size_bytes")

    def __init__(self, bodies: Bodies, size_bytes: int) -> None:
        self._bodies = bodies
        self._size_bytes = size_bytes

    def __enter__(self) -> None:
        """Count in."""
        if self._bodies.held_bytes + self._size_bytes > self._bodies.capacity_bytes:
            raise Refused(Refusal.OVERLOADED, "the node holds too many request bodies")
        self._bodies.held_bytes += self._size_bytes

    def __exit__(self, *error: object) -> None:
        """Count out."""
        self._bodies.held_bytes -= self._size_bytes
