"""The memory that request bodies may take on a node, over all its front doors."""

from headrace import limits
from headrace.refusals import Refusal, Refused


class Bodies:
    """The memory that bodies may take; a byte counts from its arrival until it is answered.

    Sizes that are only announced do not count, or a few callers that announce much and send little
    would keep all others out.
    """

    def __init__(self, capacity_bytes: int = limits.BODIES_BYTES) -> None:
        self.capacity_bytes = capacity_bytes
        self.held_bytes = 0

    def __repr__(self) -> str:
        """One line for operators."""
        return f"Bodies({self.held_bytes}/{self.capacity_bytes} bytes)"

    def hold(self) -> "Hold":
        """What one body takes, for as long as the block runs."""
        return Hold(self)


class Hold:
    """The bytes of one body. (A class, because a generator costs more than the count.)"""

    __slots__ = ("_bodies", "_size_bytes")

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._size_bytes = 0

    def __enter__(self) -> "Hold":
        """Nothing is held yet."""
        return self

    def add(self, size_bytes: int) -> None:
        """Count bytes that arrived; Refused where there is no room for them."""
        if self._bodies.held_bytes + size_bytes > self._bodies.capacity_bytes:
            raise Refused(Refusal.OVERLOADED, "the node holds too many request bodies")
        self._bodies.held_bytes += size_bytes
        self._size_bytes += size_bytes

    def __exit__(self, *error: object) -> None:
        """Count out."""
        self._bodies.held_bytes -= self._size_bytes
