"""Golden answers: a request for each model version, and what its answer must be.

The sidecar asks it after every load, before the version takes traffic. Requests are JSON of the
Open Inference Protocol. Pure.
"""

from typing import Any

from headrace.assignment import Assignment, Tensor

_ECHO: dict[str, list[Any]] = {"BYTES": ["headrace"], "BOOL": [True]}


def golden(assignment: Assignment) -> dict[str, Any]:
    """``request`` and ``checks`` for a version."""
    return _GOLDEN[assignment.executor](assignment)


def _identity(assignment: Assignment) -> dict[str, Any]:
    tensor = assignment.inputs[0]
    data = _ECHO.get(tensor.datatype, [7])
    checks = [{"output": "data", "index": 0, "equals": data[0]}]
    return {"request": _request(assignment, {tensor.name: data}), "checks": checks}


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


_GOLDEN = {"identity": _identity}
