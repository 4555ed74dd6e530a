"""Inference messages on their way to Triton and back, rewritten without being taken apart.

In protobuf the last value of a singular field wins, and the last entry of a map's key. So what the
mesh sets (Triton's model name, priority, timeout) is appended to a message, and tensors are never
copied field by field.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tritonclient.grpc import service_pb2

from headrace import limits
from headrace.oip import parameters
from headrace.oip.http_response import Result
from headrace.oip.tensors import InferRequest, Scalar

_RAW_INPUT_TAG: Final = b"\x3a"
"""Field 7, length-delimited: ``ModelInferRequest.raw_input_contents``."""
_VERSION_EMPTY: Final = b"\x12\x00"
"""Field 2, empty: ``ModelInferRequest.model_version``, whatever the caller wrote there."""
_SUFFIXES: Final = 4_096


def parse_request(data: bytes) -> Any:
    """ModelInferRequest in a message; ``DecodeError`` when it is none."""
    return service_pb2.ModelInferRequest.FromString(data)


def parse_response(data: bytes) -> Any:
    """ModelInferResponse in a message."""
    return service_pb2.ModelInferResponse.FromString(data)


@functools.lru_cache(maxsize=_SUFFIXES)
def _address(triton_model: str, priority: int) -> bytes:
    message = service_pb2.ModelInferRequest(model_name=triton_model)
    message.parameters[parameters.PRIORITY].int64_param = priority
    return bytes(message.SerializeToString() + _VERSION_EMPTY)


def address(triton_model: str, *, priority: int, timeout_us: int | None = None) -> bytes:
    """What is appended to a request so that it goes to Triton's model with that priority."""
    suffix = _address(triton_model, priority)
    if timeout_us is None:
        return suffix
    message = service_pb2.ModelInferRequest()
    message.parameters[parameters.TIMEOUT].int64_param = timeout_us
    return suffix + bytes(message.SerializeToString())


@functools.lru_cache(maxsize=_SUFFIXES)
def sender(model: str, version: int) -> bytes:
    """What is appended to a response so that it comes from the caller's model and version."""
    message = service_pb2.ModelInferResponse(model_name=model, model_version=str(version))
    return bytes(message.SerializeToString())


@functools.lru_cache(maxsize=_SUFFIXES)
def stream_sender(model: str, version: int) -> bytes:
    """The same for a response inside a stream; messages in messages are merged."""
    message = service_pb2.ModelStreamInferResponse()
    message.infer_response.model_name = model
    message.infer_response.model_version = str(version)
    return bytes(message.SerializeToString())


def encode(request: InferRequest, suffix: bytes) -> bytes:
    """ModelInferRequest of a checked request, with ``address`` as its suffix."""
    message = service_pb2.ModelInferRequest()
    if request.id:
        message.id = request.id
    for given in request.inputs:
        message.inputs.add(name=given.name, datatype=given.datatype, shape=given.shape)
    for asked in request.outputs:
        output = message.outputs.add(name=asked.name)
        if asked.classes:
            output.parameters[parameters.CLASSIFICATION].int64_param = asked.classes
    for name, value in request.parameters.items():
        _set(message.parameters[name], value)
    parts = [message.SerializeToString()]
    for given in request.inputs:
        parts += (_RAW_INPUT_TAG, _varint(len(given.data)), given.data)
    parts.append(suffix)
    return b"".join(parts)


def results(response: Any) -> Sequence[Result]:
    """Outputs of a ModelInferResponse, whose contents Triton always sends raw."""
    return [
        Result(output.name, output.datatype, list(output.shape), raw)
        for output, raw in zip(response.outputs, response.raw_output_contents, strict=True)
    ]


def response_parameters(response: Any) -> Mapping[str, Scalar]:
    """Parameters of a ModelInferResponse as plain values."""
    found: dict[str, Scalar] = {}
    for name, value in response.parameters.items():
        choice = value.WhichOneof("parameter_choice")
        if choice is not None:
            found[name] = getattr(value, choice)
    return found


def _set(parameter: Any, value: Scalar) -> None:
    match value:
        case bool():
            parameter.bool_param = value
        case int():
            parameter.int64_param = value
        case float():
            parameter.double_param = value
        case _:
            parameter.string_param = value


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def timeout_us(timeout_s: float) -> int | None:
    """Triton's ``timeout`` for a deadline; None where the caller set no shorter one than ours."""
    if timeout_s >= limits.REQUEST_DEADLINE_S:
        return None
    return max(1, round(timeout_s * 1_000_000))
