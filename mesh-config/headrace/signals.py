"""What a node says about its load. Every value has an age, and what is stale steers nothing."""

import msgspec


class VersionLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Load of one model version on one node at one moment."""

    model: str
    version: int
    ready: bool
    queue: int
    running: int
    utilization: float
    """1.0 means: send no more. Clamped to UTILIZATION_MIN..UTILIZATION_MAX."""
    rps: float


class NodeLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Load of a whole node; ``observed_at_s`` is on the clock of whoever received it.

    ``triton_age_s`` is how old what the node knew of Triton was already when it was reported.
    """

    node: str
    observed_at_s: float
    rps: float
    triton_age_s: float = 0.0
    versions: tuple[VersionLoad, ...]
