"""Work on one large message, as values that can be sent to another process and back.

Decoding JSON, or walking a long list of strings, holds the interpreter for as long as it takes: up
to seconds for 10 MB, in which no other request would be answered. A thread does not help, since a
decoder never lets go of the interpreter. So ``weighs`` tells large from small, small work is done
where it comes up, and large work travels as a ``Task``; its ``Outcome`` travels back.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from headrace import limits
from headrace.assignment import Assignment
from headrace.oip import grpc_request, http_request, http_response
from headrace.oip.http_response import Result
from headrace.oip.tensors import InferRequest, Input, Output, Scalar
from headrace.refusals import Refusal, Refused


class ParseHttp(msgspec.Struct, tag=True):
    """Read a body that came by HTTP."""

    body: bytes
    header_length: str | None
    assignment: Assignment


class CheckGrpc(msgspec.Struct, tag=True):
    """Check an encoded ModelInferRequest."""

    message: bytes
    assignment: Assignment
    stream: bool


class RenderHttp(msgspec.Struct, tag=True):
    """Write an answer for HTTP."""

    asked: "Asked"
    results: Sequence[Result]
    parameters: Mapping[str, Scalar]
    model: str
    version: int


class Asked(msgspec.Struct):
    """What an answer depends on of its request."""

    outputs: tuple[Output, ...]
    id: str
    binary: bool


class _Input(msgspec.Struct):
    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes


class Parsed(msgspec.Struct, tag=True):
    """A request that was read."""

    inputs: list[_Input]
    outputs: tuple[Output, ...]
    id: str
    parameters: dict[str, Scalar]
    binary: bool


class Checked(msgspec.Struct, tag=True):
    """The message may go on."""


class Rendered(msgspec.Struct, tag=True):
    """Body of an answer, and how many bytes of it are JSON when tensors follow."""

    body: bytes
    header_bytes: int | None


class Declined(msgspec.Struct, tag=True):
    """The work ended in a refusal."""

    code: str
    message: str
    where: str


Task = ParseHttp | CheckGrpc | RenderHttp
Outcome = Parsed | Checked | Rendered | Declined

_BY_CODE: Final = {refusal.code: refusal for refusal in Refusal}


def weighs(structured_bytes: int, whole_bytes: int, assignment: Assignment) -> bool:
    """Whether a message is large work, of which only some bytes are no plain tensors."""
    if whole_bytes <= limits.INLINE_BYTES:
        return False
    return structured_bytes > limits.INLINE_BYTES or _strings(assignment) > limits.INLINE_STRINGS


def _strings(assignment: Assignment) -> float:
    """Most elements of BYTES that a request may have."""
    batch = max(1, assignment.batching.max_batch_size)
    return sum(
        math.inf if -1 in tensor.shape else batch * math.prod(tensor.shape)
        for tensor in assignment.inputs
        if tensor.datatype == "BYTES"
    )


def perform(task: Task) -> Outcome:
    """Do the work."""
    try:
        match task:
            case ParseHttp():
                found = http_request.parse(task.body, task.header_length, task.assignment)
                return Parsed(
                    inputs=[
                        _Input(one.name, one.datatype, one.shape, bytes(one.data))
                        for one in found.inputs
                    ],
                    outputs=found.outputs,
                    id=found.id,
                    parameters=dict(found.parameters),
                    binary=found.binary,
                )
            case CheckGrpc():
                _check_grpc(task)
                return Checked()
            case RenderHttp():
                asked = InferRequest(
                    inputs=(),
                    outputs=task.asked.outputs,
                    id=task.asked.id,
                    binary=task.asked.binary,
                )
                return Rendered(
                    *http_response.render(
                        asked, task.results, task.parameters, model=task.model, version=task.version
                    )
                )
    except Refused as refused:
        return Declined(refused.refusal.code, refused.message, refused.where)
    except MemoryError:
        return Declined(
            Refusal.REQUEST_TOO_LARGE.code, "it takes too much memory; send binary data", "body"
        )


def _check_grpc(task: CheckGrpc) -> None:
    # Only here: what reads JSON does without protobuf, and starts in a fifth of the time.
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    from headrace_sidecar.gpu import messages  # noqa: PLC0415

    try:
        asked = messages.parse_request(task.message)
    except DecodeError:
        raise Refused(Refusal.INVALID_VALUE, "the message cannot be decoded") from None
    grpc_request.check(asked, task.assignment, stream=task.stream)


def request(parsed: Parsed) -> InferRequest:
    """The request that was read."""
    return InferRequest(
        inputs=tuple(Input(one.name, one.datatype, one.shape, one.data) for one in parsed.inputs),
        outputs=parsed.outputs,
        id=parsed.id,
        parameters=parsed.parameters,
        binary=parsed.binary,
    )


def refusal(declined: Declined) -> Refused:
    """The refusal that work ended in."""
    return Refused(_BY_CODE[declined.code], declined.message, where=declined.where)
