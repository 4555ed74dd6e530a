"""Tensor data between JSON and bytes, once each way, without numpy."""

import functools
import itertools
import math
import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from headrace import limits
from headrace.oip.datatypes import FP32_END, Datatype, Kind
from headrace.oip.tensors import Buffer, invalid, split_bytes_elements
from headrace.refusals import Refusal, Refused

_ELEMENT: Final[dict[Kind, type]] = {
    Kind.BOOL: bool,
    Kind.INTEGER: int,
    Kind.FLOAT: float,
    Kind.BYTES: str,
}
_SPACE: Final = b" \t\n\r"
_LENGTH: Final = struct.Struct("<I")


def to_raw(data: Buffer, shape: Sequence[int], datatype: Datatype, where: str) -> bytes:
    """Bytes of a tensor given as a JSON array, flat or nested as its shape is.

    ``data`` is valid JSON. Refused when a value does not fit the datatype or their number the
    shape.
    """
    if datatype.kind is Kind.HALF:
        raise invalid(where, f"{datatype.name} has no JSON form; send it as binary data")
    values = _flat(bytes(data), shape, datatype, where)
    if len(values) != math.prod(shape):
        raise invalid(
            where, f"{len(values)} elements, but the shape {list(shape)} holds {math.prod(shape)}"
        )
    return _PACK[datatype.kind](values, datatype, where)


def _flat(data: bytes, shape: Sequence[int], datatype: Datatype, where: str) -> list[Any]:
    depth = _leading_brackets(data)
    if depth not in (1, len(shape)):
        raise invalid(where, f"must be one flat array, or nested as the shape {list(shape)}")
    try:
        values = _decoder(datatype.kind, depth)(data)
    except msgspec.ValidationError as error:
        raise invalid(where, f"each element of {datatype.name} is {_says(error, datatype)}") from (
            error
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(Refusal.INVALID_JSON, f"{where}: {error}", where=where) from error
    if depth == 1:
        return values
    for level, size in enumerate(shape[:-1]):
        inner = shape[level + 1]
        if (level == 0 and len(values) != size) or any(len(part) != inner for part in values):
            raise invalid(where, f"is not nested as the shape {list(shape)} says")
        values = list(itertools.chain.from_iterable(values))
    return values


def _leading_brackets(data: bytes) -> int:
    depth = 0
    for byte in data[: 4 * limits.JSON_DEPTH]:
        if byte == ord("["):
            depth += 1
        elif byte not in _SPACE:
            break
    return depth


@functools.cache
def _decoder(kind: Kind, depth: int) -> Callable[[bytes], list[Any]]:
    nested: Any = _ELEMENT[kind]
    for _ in range(depth):
        nested = list[nested]
    decode: Callable[[bytes], list[Any]] = msgspec.json.Decoder(nested).decode
    return decode


def _says(error: msgspec.ValidationError, datatype: Datatype) -> str:
    return f"{datatype.kind.value} ({str(error)[:200]})"


def _pack_bools(values: list[Any], datatype: Datatype, where: str) -> bytes:
    del datatype, where  # Every bool fits.
    return bytes(values)


def _pack_integers(values: list[Any], datatype: Datatype, where: str) -> bytes:
    try:
        return _little_endian(array(datatype.code, values))
    except OverflowError:
        position = next(
            at for at, value in enumerate(values) if not datatype.low <= value <= datatype.high
        )
        raise invalid(
            f"{where}[{position}]",
            f"{datatype.name} holds {datatype.low} to {datatype.high}",
        ) from None


def _pack_floats(values: list[Any], datatype: Datatype, where: str) -> bytes:
    # A conversion to FP32 would silently make an infinity of what is too large.
    if datatype.name == "FP32" and values and (max(values) >= FP32_END or min(values) <= -FP32_END):
        position = next(at for at, value in enumerate(values) if abs(value) >= FP32_END)
        raise invalid(f"{where}[{position}]", f"FP32 holds less than {FP32_END}")
    return _little_endian(array(datatype.code, values))


def _pack_strings(values: list[Any], datatype: Datatype, where: str) -> bytes:
    if len(values) > limits.BYTES_ELEMENTS:
        raise invalid(
            where, f"{len(values)} elements of {datatype.name}; at most {limits.BYTES_ELEMENTS}"
        )
    parts: list[bytes] = []
    for value in values:
        encoded = value.encode()
        parts.append(_LENGTH.pack(len(encoded)))
        parts.append(encoded)
    return b"".join(parts)


_PACK: Final[dict[Kind, Callable[[list[Any], Datatype, str], bytes]]] = {
    Kind.BOOL: _pack_bools,
    Kind.INTEGER: _pack_integers,
    Kind.FLOAT: _pack_floats,
    Kind.BYTES: _pack_strings,
}


def _little_endian(values: "array[Any]") -> bytes:
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def from_raw(raw: bytes, datatype: Datatype, where: str) -> list[Any]:
    """Flat list of the elements, for JSON; Refused where JSON has no form for them."""
    if datatype.kind is Kind.HALF:
        raise invalid(where, f"{datatype.name} has no JSON form; ask for it as binary data")
    if datatype.kind is Kind.BYTES:
        try:
            return [element.decode() for element in split_bytes_elements(raw)]
        except UnicodeDecodeError:
            raise invalid(where, "an element is not UTF-8; ask for it as binary data") from None
    if datatype.kind is Kind.BOOL:
        return [value != 0 for value in raw]
    values = array(datatype.code, raw)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()
