"""What a GPU node is told to hold: one model version, as a resource of the control server."""

from typing import Any

import msgspec

from headrace import names


class Tensor(msgspec.Struct, frozen=True, kw_only=True):
    """One input or output; ``shape`` leaves out the batch dimension, -1 is any size."""

    name: str
    datatype: str
    shape: tuple[int, ...]


class Batching(msgspec.Struct, frozen=True, kw_only=True):
    """How Triton forms batches; ``max_batch_size`` 0 turns batching off."""

    max_batch_size: int
    max_queue_delay_s: float
    max_queue_size: int
    queue_timeout_s: float


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """Spec of one model version on one node.

    ``executor`` names what runs it (a folder of ``model-server/models``), ``artifact`` its weights.
    ``attempt`` rises when the control server offers again what was NACKed; all else equal, a node
    that already holds the version has nothing to do.
    """

    model: str
    version: int
    executor: str
    artifact: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    batching: Batching
    instances: int = 1
    threads: int = 1
    slo_s: float = 0.3
    idempotent: bool = False
    parameters: dict[str, str] = {}
    attempt: int = 0

    @property
    def name(self) -> str:
        """Resource name."""
        return names.assignment(self.model, self.version)


def to_json(assignment: Assignment) -> dict[str, Any]:
    """Plain JSON value of an assignment, as it travels in a TypedStruct."""
    plain: dict[str, Any] = msgspec.to_builtins(assignment)
    return plain


def from_json(value: object) -> Assignment:
    """Assignment in a plain JSON value; numbers may be floats, as protobuf's Struct makes them.

    Raises ``msgspec.ValidationError`` naming the field when the value is none.
    """
    return msgspec.convert(value, Assignment, strict=False)
