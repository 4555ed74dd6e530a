"""An inference request over HTTP: JSON, JSON followed by binary tensors, or one raw tensor."""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from headrace import limits
from headrace.assignment import Assignment
from headrace.oip import declared, identifiers, json_data, json_guard, parameters
from headrace.oip.datatypes import BYTES_PREFIX, DATATYPES, Kind
from headrace.oip.tensors import (
    Buffer,
    InferRequest,
    Input,
    Output,
    check_data,
    datatype_of,
    element_count,
    invalid,
)
from headrace.refusals import Refusal, Refused

HEADER_LENGTH: Final = "inference-header-content-length"
"""HTTP header: how many bytes of the body are JSON; 0 says that the body is one raw tensor."""

_Parameters = dict[str, bool | int | float | str]
_Unset = msgspec.UnsetType
_UNSET: Final = msgspec.UNSET
_WHERE: Final = re.compile(r" - at `([^`]*)`$")


class _Input(msgspec.Struct, frozen=True, gc=False):
    name: str
    shape: tuple[int, ...]
    datatype: str
    parameters: _Parameters | _Unset = _UNSET
    data: msgspec.Raw | _Unset = _UNSET


class _Output(msgspec.Struct, frozen=True, gc=False):
    name: str
    parameters: _Parameters | _Unset = _UNSET


class _Body(msgspec.Struct, frozen=True):
    inputs: list[_Input]
    outputs: list[_Output] | _Unset = _UNSET
    id: str | _Unset = _UNSET
    parameters: _Parameters | _Unset = _UNSET


_decode: Final = msgspec.json.Decoder(_Body).decode


def parse(body: bytes, header_length: str | None, assignment: Assignment) -> InferRequest:
    """The request in a body; Refused where Triton must not see it.

    ``header_length`` is the value of the header HEADER_LENGTH, None where it is absent.
    """
    if len(body) > limits.BODY_BYTES:
        raise too_large()
    if header_length is None:
        return _parse_json(body, b"", assignment)
    size = _parse_header_length(header_length, len(body))
    if size == 0:
        return _parse_raw(body, assignment)
    return _parse_json(body[:size], memoryview(body)[size:], assignment)


def json_bytes(header_length: str | None, body_bytes: int) -> int:
    """How much of a body is JSON, as far as a header says that need not be right."""
    if header_length is None or not (header_length.isascii() and header_length.isdigit()):
        return body_bytes
    return min(body_bytes, int(header_length[:19]))


def too_large() -> Refused:
    """Refusal of a body over the limit."""
    return Refused(
        Refusal.REQUEST_TOO_LARGE, f"the body exceeds {limits.BODY_BYTES} bytes", where="body"
    )


def _parse_header_length(text: str, body_bytes: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise invalid(HEADER_LENGTH, "must be a number of bytes")
    size = int(text)
    if size > body_bytes:
        raise invalid(HEADER_LENGTH, f"{size} is more than the {body_bytes} bytes of the body")
    return size


def _parse_raw(body: bytes, assignment: Assignment) -> InferRequest:
    """The body as the only input; a single string comes without its length, as Triton has it."""
    if len(assignment.inputs) != 1:
        raise invalid(
            HEADER_LENGTH,
            f"a raw body is one tensor, but {assignment.model} has {len(assignment.inputs)} inputs",
        )
    tensor = assignment.inputs[0]
    datatype = datatype_of(tensor.datatype, "inputs[0].datatype")
    batch = (1,) if assignment.batching.max_batch_size else ()
    if datatype.kind is Kind.BYTES:
        if any(size != 1 for size in tensor.shape):
            raise invalid("body", f"a raw body is one string; {tensor.name} may hold several")
        data = len(body).to_bytes(BYTES_PREFIX, "little") + body
        shape = batch + tensor.shape
    else:
        data = body
        shape = batch + _inferred(tensor.shape, len(body), datatype.itemsize)
    count = element_count(shape, datatype, "body")
    check_data(data, count, datatype, "body")
    return InferRequest(inputs=(Input(tensor.name, tensor.datatype, shape, data),), binary=True)


def _inferred(shape: Sequence[int], body_bytes: int, itemsize: int) -> tuple[int, ...]:
    """The declared shape with its one open dimension filled by what the body holds."""
    if sum(size == declared.BATCH for size in shape) > 1:
        raise invalid("body", f"the shape {list(shape)} does not follow from the size of the body")
    known = itemsize
    for size in shape:
        known *= max(size, 0) if size != declared.BATCH else 1
    rest = body_bytes // known if known else 0
    return tuple(rest if size == declared.BATCH else size for size in shape)


def _parse_json(header: bytes, binary: Buffer, assignment: Assignment) -> InferRequest:
    json_guard.check_depth(header)
    try:
        body = _decode(header)
    except msgspec.ValidationError as error:
        raise _misfit(error) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise json_guard.bad_json(str(error)) from error
    json_guard.check_keys(header, _strings(body))
    declared.check_inputs(body.inputs, assignment, "$.inputs")
    inputs = _tensors(body.inputs, binary)
    asked = body.outputs or []
    declared.check_outputs([output.name for output in asked], assignment, "$.outputs")
    options = _given(body.parameters)
    parameters.check(options, "$.parameters")
    every = _flag(options, parameters.BINARY_OUTPUT, "$.parameters")
    return InferRequest(
        inputs=inputs,
        outputs=tuple(_output(output, at, binary=every) for at, output in enumerate(asked)),
        id=identifiers.check_id(body.id or "", "$.id"),
        parameters={key: options[key] for key in options if key != parameters.BINARY_OUTPUT},
        binary=every,
    )


def _misfit(error: msgspec.ValidationError) -> Refused:
    text = str(error)
    found = _WHERE.search(text)
    return invalid(found.group(1) if found else "$", _WHERE.sub("", text))


def _tensors(inputs: Sequence[_Input], binary: Buffer) -> tuple[Input, ...]:
    tensors: list[Input] = []
    offset = 0
    for position, given in enumerate(inputs):
        where = f"$.inputs[{position}]"
        datatype = DATATYPES[given.datatype]
        count = element_count(given.shape, datatype, f"{where}.shape")
        size = _binary_size(_given(given.parameters), where)
        data: Buffer
        if size is None:
            if given.data is _UNSET:
                raise invalid(where, "has neither data nor parameters.binary_data_size")
            data = json_data.to_raw(memoryview(given.data), given.shape, datatype, f"{where}.data")
        else:
            if given.data is not _UNSET:
                raise invalid(where, "has both data and parameters.binary_data_size")
            data = binary[offset : offset + size]
            if len(data) != size:
                raise invalid(where, f"{size} bytes of binary data, but only {len(data)} are left")
            check_data(data, count, datatype, where)
            offset += size
        tensors.append(Input(given.name, given.datatype, given.shape, data))
    if offset != len(binary):
        raise invalid("body", f"{len(binary) - offset} bytes of binary data belong to no input")
    return tuple(tensors)


def _binary_size(options: _Parameters, where: str) -> int | None:
    place = f"{where}.parameters"
    parameters.check(options, place)
    size = options.get(parameters.BINARY_DATA_SIZE)
    if size is None:
        return None
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise invalid(f"{place}.{parameters.BINARY_DATA_SIZE}", "must be a number of bytes")
    return size


def _output(output: _Output, position: int, *, binary: bool) -> Output:
    where = f"$.outputs[{position}].parameters"
    options = _given(output.parameters)
    parameters.check(options, where)
    classes = options.get(parameters.CLASSIFICATION, 0)
    if isinstance(classes, bool) or not isinstance(classes, int) or classes < 0:
        raise invalid(f"{where}.{parameters.CLASSIFICATION}", "must be how many labels to return")
    if parameters.BINARY_DATA in options:
        binary = _flag(options, parameters.BINARY_DATA, where)
    return Output(output.name, binary, classes)


def _flag(options: _Parameters, name: str, where: str) -> bool:
    value = options.get(name, False)
    if not isinstance(value, bool):
        raise invalid(f"{where}.{name}", "must be true or false")
    return value


def _given(options: _Parameters | _Unset) -> _Parameters:
    return {} if isinstance(options, _Unset) else options


def _strings(body: _Body) -> int:
    """Strings of the JSON that the decoded body stands for, keys included."""
    count = 1 + _parameter_strings(body.parameters) + (0 if body.id is _UNSET else 2)
    for given in body.inputs:
        count += 5 + _parameter_strings(given.parameters)
        if given.data is not _UNSET:
            count += 1 + json_guard.count_strings(bytes(given.data))
    if not isinstance(body.outputs, _Unset):
        count += 1
        count += sum(2 + _parameter_strings(output.parameters) for output in body.outputs)
    return count


def _parameter_strings(options: _Parameters | _Unset) -> int:
    if isinstance(options, _Unset):
        return 0
    return 1 + sum(2 if isinstance(value, str) else 1 for value in options.values())
