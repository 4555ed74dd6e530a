"""Golden answers: a request for each model version, and what its answer must be.

The sidecar asks it after every load, before the version takes traffic. Requests are JSON of the
Open Inference Protocol. Pure.
"""

import base64
import functools
import struct
import zlib
from collections.abc import Callable
from typing import Any, Final

from headrace.assignment import Assignment, Tensor

_ECHO: Final[dict[str, list[Any]]] = {"BYTES": ["headrace"], "BOOL": [True]}
_CROSSWORD: Final = 918
_CROSSWORD_PROBABILITY: Final = {"efficientnet-lite0": 0.908, "efficientnet-lite1": 0.778}
_PROBABILITY_TOLERANCE: Final = 0.05
_QUERY: Final = "CUDA OOM when serving"
_DOCUMENTS: Final = (
    "Out of memory error in CUDA kernels",
    "GPU memory ran out while loading the model",
    "How to bake sourdough bread",
)
_SCORES: Final = {
    "minilm-l6": ((0.463, 0.270, 0.020), 0.005),
    "minilm-l6-int8": ((0.465, 0.266, 0.007), 0.02),
}
"""Scores of the documents, and how far an answer may be off."""
_SIZE: Final = 224
_SQUARE: Final = 16


def golden(assignment: Assignment) -> dict[str, Any]:
    """``request`` and ``checks`` for a version."""
    return _GOLDEN[assignment.executor](assignment)


def _identity(assignment: Assignment) -> dict[str, Any]:
    tensor = assignment.inputs[0]
    data = _ECHO.get(tensor.datatype, [7])
    checks = [{"output": "data", "index": 0, "equals": data[0]}]
    return {"request": _request(assignment, {tensor.name: data}), "checks": checks}


def _vision(assignment: Assignment) -> dict[str, Any]:
    uri = f"data:image/png;base64,{base64.b64encode(crossword()).decode()}"
    probability = _CROSSWORD_PROBABILITY[assignment.artifact]
    checks = [
        {"output": "labels", "index": 0, "equals": "crossword"},
        {"output": "classes", "index": 0, "equals": _CROSSWORD},
        _near("probabilities", 0, probability, _PROBABILITY_TOLERANCE),
    ]
    return {"request": _request(assignment, {"image": [uri]}), "checks": checks}


def _ranking(assignment: Assignment) -> dict[str, Any]:
    data: dict[str, list[Any]] = {"query": [_QUERY], "documents": list(_DOCUMENTS)}
    scores, tolerance = _SCORES[assignment.artifact]
    checks = [_near("scores", index, score, tolerance) for index, score in enumerate(scores)]
    return {"request": _request(assignment, data), "checks": checks}


@functools.cache
def crossword() -> bytes:
    """A drawn crossword as PNG: every EfficientNet-Lite is sure of it."""
    rows = (b"".join(_grey(x, y) for x in range(_SIZE)) for y in range(_SIZE))
    pixels = b"".join(b"\0" + row for row in rows)
    head = struct.pack(">IIBBBBB", _SIZE, _SIZE, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(pixels)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, body) for kind, body in chunks)


def _grey(x: int, y: int) -> bytes:
    line = x % _SQUARE == 0 or y % _SQUARE == 0
    block = (x // _SQUARE * 7 + y // _SQUARE * 3) % 5 == 0
    return b"\0" if line or block else b"\xff"


def _chunk(kind: bytes, body: bytes) -> bytes:
    """One chunk of a PNG file."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _near(output: str, index: int, value: float, tolerance: float) -> dict[str, Any]:
    return {"output": output, "index": index, "near": value, "tolerance": tolerance}


def _request(assignment: Assignment, data: dict[str, list[Any]]) -> dict[str, Any]:
    return {
        "inputs": [
            {
                "name": tensor.name,
                "datatype": tensor.datatype,
                "shape": _shape(assignment, tensor, len(data[tensor.name])),
                "data": data[tensor.name],
            }
            for tensor in assignment.inputs
        ]
    }


def _shape(assignment: Assignment, tensor: Tensor, length: int) -> list[int]:
    """Shape of ``length`` elements: they fill the last dimension, the others are 1."""
    batch = [1] if assignment.batching.max_batch_size > 0 else []
    return [*batch, *(1 for _ in tensor.shape[:-1]), length]


_GOLDEN: Final[dict[str, Callable[[Assignment], dict[str, Any]]]] = {
    "identity": _identity,
    "vision": _vision,
    "ranking": _ranking,
}
