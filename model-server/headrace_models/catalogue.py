"""What the model server can run: its executors, their interfaces, and which artifacts they take.

A new executor is a folder of ``models`` and a row here.
"""

from dataclasses import dataclass, field
from typing import Final

from headrace.assignment import Assignment
from headrace_models.failure import Failure


@dataclass(frozen=True, slots=True)
class Executor:
    """One way of running a model."""

    name: str
    pads: bool
    """It takes requests of different lengths in one batch, and pads them itself."""
    artifacts: frozenset[str] = frozenset()
    """Weights it can run; empty: it has none."""
    inputs: frozenset[str] = frozenset()
    outputs: frozenset[str] = frozenset()
    parameters: frozenset[str] = field(default=frozenset())
    """Parameters it reads."""


EXECUTORS: Final = {
    executor.name: executor
    for executor in (
        Executor(
            name="vision",
            pads=False,
            artifacts=frozenset({"efficientnet-lite0", "efficientnet-lite1"}),
            inputs=frozenset({"image"}),
            outputs=frozenset({"labels", "classes", "probabilities"}),
        ),
        Executor(
            name="ranking",
            pads=True,
            artifacts=frozenset({"minilm-l6", "minilm-l6-int8"}),
            inputs=frozenset({"query", "documents"}),
            outputs=frozenset({"scores"}),
            parameters=frozenset({"buckets"}),
        ),
        Executor(
            name="identity",
            pads=True,
            inputs=frozenset({"data"}),
            outputs=frozenset({"data"}),
            parameters=frozenset({"delay_ms", "test_hooks"}),
        ),
    )
}


def check(assignment: Assignment) -> Executor:
    """The assignment's executor; raises Failure when it cannot run what is assigned."""
    executor = EXECUTORS.get(assignment.executor)
    if executor is None:
        raise _refused("unknown_executor", "executor", assignment.executor, EXECUTORS)
    if executor.artifacts and assignment.artifact not in executor.artifacts:
        raise _refused("unknown_artifact", "artifact", assignment.artifact, executor.artifacts)
    for name in sorted(assignment.parameters.keys() - executor.parameters):
        raise _refused("unknown_parameter", "parameters", name, executor.parameters)
    _check_tensors("inputs", {tensor.name for tensor in assignment.inputs}, executor.inputs)
    _check_tensors("outputs", {tensor.name for tensor in assignment.outputs}, executor.outputs)
    return executor


def _check_tensors(where: str, named: set[str], known: frozenset[str]) -> None:
    if named != known:
        raise Failure(
            "wrong_tensors",
            f"the executor has {', '.join(sorted(known))}, not {', '.join(sorted(named))}",
            where=where,
            remedy=f"declare exactly the executor's {where}",
        )


def _refused(code: str, where: str, given: str, known: object) -> Failure:
    names = ", ".join(sorted(known)) if isinstance(known, dict | frozenset) else ""
    return Failure(
        code,
        f"{given!r} is none that this model server knows",
        where=where,
        remedy=f"use one of: {names}" if names else "leave it out",
    )
