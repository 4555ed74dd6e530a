"""An inference response over HTTP: JSON, followed by the outputs that were asked for as binary."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from headrace.oip import json_data
from headrace.oip.datatypes import DATATYPES
from headrace.oip.parameters import BINARY_DATA_SIZE
from headrace.oip.tensors import InferRequest, Scalar
from headrace.refusals import Refusal, Refused


class Result(msgspec.Struct, frozen=True, gc=False):
    """One output as Triton returned it."""

    name: str
    datatype: str
    shape: Sequence[int]
    raw: bytes


class _Output(msgspec.Struct, gc=False, omit_defaults=True):
    name: str
    datatype: str
    shape: Sequence[int]
    parameters: Mapping[str, int] | msgspec.UnsetType = msgspec.UNSET
    data: list[Any] | msgspec.UnsetType = msgspec.UNSET


class _Response(msgspec.Struct, gc=False):
    model_name: str
    model_version: str
    outputs: list[_Output]
    id: str | msgspec.UnsetType = msgspec.UNSET
    parameters: Mapping[str, Scalar] | msgspec.UnsetType = msgspec.UNSET


_encode: Final = msgspec.json.Encoder().encode


def render(
    request: InferRequest,
    results: Sequence[Result],
    parameters: Mapping[str, Scalar],
    *,
    model: str,
    version: int,
) -> tuple[bytes, int | None]:
    """Body of the response, and how many of its bytes are JSON when tensors follow it.

    Not-a-number and infinities have no JSON form and become ``null``.
    """
    binary = {output.name: output.binary for output in request.outputs}
    outputs: list[_Output] = []
    tail: list[bytes] = []
    for position, result in enumerate(results):
        output = _Output(result.name, result.datatype, result.shape)
        outputs.append(output)
        if binary.get(result.name, request.binary):
            output.parameters = {BINARY_DATA_SIZE: len(result.raw)}
            tail.append(result.raw)
        else:
            output.data = _values(result, f"$.outputs[{position}]")
    head = _encode(
        _Response(
            model_name=model,
            model_version=str(version),
            outputs=outputs,
            id=request.id or msgspec.UNSET,
            parameters=parameters or msgspec.UNSET,
        )
    )
    if not tail:
        return head, None
    return b"".join((head, *tail)), len(head)


def json_bytes(request: InferRequest, results: Sequence[Result]) -> int:
    """Bytes of the outputs that a response would spell out."""
    binary = {output.name: output.binary for output in request.outputs}
    return sum(len(result.raw) for result in results if not binary.get(result.name, request.binary))


def _values(result: Result, where: str) -> list[Any]:
    datatype = DATATYPES.get(result.datatype)
    if datatype is None or len(result.raw) % (datatype.itemsize or 1):
        raise Refused(
            Refusal.INTERNAL, f"{where}: the model returned a malformed {result.datatype}"
        )
    return json_data.from_raw(result.raw, datatype, where)
