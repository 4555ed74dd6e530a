"""Checks a safetensors file's header before anything maps it: bounds, overlap, sizes, names."""

import json
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from headrace import limits
from headrace_models.failure import Failure

_LENGTH_BYTES: Final = 8
_ITEM_BYTES: Final = {
    "BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8,
}  # fmt: skip


def check(path: Path) -> None:
    """Raise Failure unless the header describes exactly the bytes that follow it."""
    total = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if length > limits.WEIGHTS_HEADER_BYTES or _LENGTH_BYTES + length > total:
            raise _bad(path, f"its header claims {length} bytes")
        text = file.read(length)
    problem = header_problem(text, total - _LENGTH_BYTES - length)
    if problem is not None:
        raise _bad(path, problem)


def header_problem(text: bytes, data_bytes: int) -> str | None:
    """What is wrong with a header that ``data_bytes`` of tensors follow; None when nothing."""
    try:
        header = json.loads(text, object_pairs_hook=_without_duplicates)
        header.pop("__metadata__", None)
        spans = [_span(name, entry) for name, entry in header.items()]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return f"its header is malformed: {error}"
    edges = [(0, 0), *sorted(spans), (data_bytes, data_bytes)]
    for (_, end), (begin, _) in pairwise(edges):
        if end != begin:
            return "its tensors overlap, leave gaps or reach past the end"
    return None


def _span(name: str, entry: dict[str, Any]) -> tuple[int, int]:
    begin, end = entry["data_offsets"]
    shape = entry["shape"]
    if not all(isinstance(number, int) and number >= 0 for number in (begin, end, *shape)):
        raise ValueError(f"{name} has a number that is no size")
    if end - begin != math.prod(shape) * _ITEM_BYTES[entry["dtype"]]:
        raise ValueError(f"the size of {name} does not follow from its shape")
    return begin, end


def _without_duplicates(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a name occurs twice")
    return made


def _bad(path: Path, problem: str) -> Failure:
    return Failure(
        "weights_malformed", problem, where=str(path), remedy="delete the file to convert it again"
    )
