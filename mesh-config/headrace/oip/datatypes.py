"""The datatypes of the Open Inference Protocol: size, range, and how JSON may carry them."""

import enum
from typing import Final, NamedTuple


class Kind(enum.Enum):
    """What a JSON value of the datatype looks like."""

    BOOL = "true or false"
    INTEGER = "an integer"
    FLOAT = "a number"
    HALF = "nothing: two-byte floats travel as binary data only"
    BYTES = "a string"


class Datatype(NamedTuple):
    """One datatype; ``itemsize`` is 0 where elements carry their own length."""

    name: str
    kind: Kind
    itemsize: int
    code: str
    """Type code of ``array`` and ``memoryview``; empty where there is none."""
    low: int = 0
    high: int = 0
    """Range of an integer."""


def _integer(name: str, code: str, bits: int, *, signed: bool) -> Datatype:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return Datatype(name, Kind.INTEGER, bits // 8, code, low, high)


_ALL: Final = (
    Datatype("BOOL", Kind.BOOL, 1, "B", 0, 1),
    _integer("UINT8", "B", 8, signed=False),
    _integer("UINT16", "H", 16, signed=False),
    _integer("UINT32", "I", 32, signed=False),
    _integer("UINT64", "Q", 64, signed=False),
    _integer("INT8", "b", 8, signed=True),
    _integer("INT16", "h", 16, signed=True),
    _integer("INT32", "i", 32, signed=True),
    _integer("INT64", "q", 64, signed=True),
    Datatype("FP16", Kind.HALF, 2, ""),
    Datatype("BF16", Kind.HALF, 2, ""),
    Datatype("FP32", Kind.FLOAT, 4, "f"),
    Datatype("FP64", Kind.FLOAT, 8, "d"),
    Datatype("BYTES", Kind.BYTES, 0, ""),
)

DATATYPES: Final[dict[str, Datatype]] = {datatype.name: datatype for datatype in _ALL}
"""Every datatype by its name on the wire."""

BYTES_PREFIX: Final = 4
"""An element of BYTES follows its length as four bytes, little-endian."""

FP32_END: Final = 3.4028235677973366e38
"""Numbers from here on round to infinity as FP32; those just above its largest value do not."""
