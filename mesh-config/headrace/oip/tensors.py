"""Tensors of a request as values: their names, shapes and bytes, and whether these agree.

The bytes of a tensor stay one buffer (a ``memoryview`` of the body where they came as binary);
they are never spread into a list.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from headrace import limits
from headrace.oip.datatypes import BYTES_PREFIX, DATATYPES, Datatype
from headrace.refusals import Refusal, Refused

Buffer = bytes | memoryview
Scalar = bool | int | float | str

_ELEMENTS_MAX: Final = 2**31 - 1


class Input(msgspec.Struct, frozen=True, gc=False):
    """One input whose bytes agree with its shape."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: Buffer


class Output(msgspec.Struct, frozen=True, gc=False):
    """One output that was asked for; ``classes`` asks for the best so many labels instead."""

    name: str
    binary: bool
    classes: int = 0


class InferRequest(msgspec.Struct, frozen=True):
    """A request that may go to Triton."""

    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...] = ()
    """Empty: every output."""
    id: str = ""
    parameters: Mapping[str, Scalar] = {}
    binary: bool = False
    """How outputs that were not named are returned."""


def invalid(where: str, message: str) -> Refused:
    """Refusal of a field that has a wrong value."""
    return Refused(Refusal.INVALID_VALUE, f"{where}: {message}" if where else message, where=where)


def datatype_of(name: str, where: str) -> Datatype:
    """Datatype of that name; Refused when there is none."""
    found = DATATYPES.get(name)
    if found is None:
        raise invalid(where, f"unknown datatype {name[:32]!r}; known are {', '.join(DATATYPES)}")
    return found


def element_count(shape: Sequence[int], datatype: Datatype, where: str) -> int:
    """Elements in a shape; Refused where it is no shape or no request could carry them."""
    if len(shape) > limits.TENSOR_RANK:
        raise invalid(where, f"{len(shape)} dimensions; at most {limits.TENSOR_RANK}")
    count = 1
    for position, size in enumerate(shape):
        if size < 0:
            raise invalid(f"{where}[{position}]", "a dimension may not be negative")
        if size > _ELEMENTS_MAX:
            raise invalid(f"{where}[{position}]", f"a dimension may not exceed {_ELEMENTS_MAX}")
        # Python integers do not wrap, so that the product is true whatever was sent.
        count *= size
    if count * (datatype.itemsize or BYTES_PREFIX) > limits.BODY_BYTES:
        raise Refused(
            Refusal.REQUEST_TOO_LARGE,
            f"{where}: {count} elements of {datatype.name} exceed {limits.BODY_BYTES} bytes",
            where=where,
        )
    return count


def check_data(data: Buffer, count: int, datatype: Datatype, where: str) -> None:
    """Refuse bytes that are not exactly ``count`` elements."""
    if datatype.itemsize:
        if len(data) != count * datatype.itemsize:
            raise invalid(
                where,
                f"{len(data)} bytes of data, but the shape holds {count} elements of "
                f"{datatype.name}: {count * datatype.itemsize} bytes",
            )
        if datatype.name == "BOOL" and bytes(data).translate(None, b"\x00\x01"):
            raise invalid(where, "a BOOL is a byte 0 or 1")
        return
    check_bytes_elements(data, count, where)


def check_bytes_elements(data: Buffer, count: int, where: str) -> None:
    """Refuse BYTES whose length prefixes do not end exactly where the data does."""
    if count > limits.BYTES_ELEMENTS:
        raise invalid(where, f"{count} elements of BYTES; at most {limits.BYTES_ELEMENTS}")
    position, end, found = 0, len(data), 0
    while position < end and found < count:
        start = position + BYTES_PREFIX
        position = start + int.from_bytes(data[position:start], "little")
        if start > end or position > end:
            raise invalid(where, f"element {found} runs past the end of the data")
        found += 1
    if position != end or found != count:
        raise invalid(where, f"the data does not hold exactly {count} elements of BYTES")


def split_bytes_elements(data: Buffer) -> list[bytes]:
    """Elements of BYTES data that ``check_bytes_elements`` accepted, or that Triton made."""
    elements: list[bytes] = []
    position, end = 0, len(data)
    while position < end:
        start = position + BYTES_PREFIX
        position = start + int.from_bytes(data[position:start], "little")
        elements.append(bytes(data[start:position]))
    return elements
