"""A request's tensors against what the assignment of the model version declares."""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from headrace import limits
from headrace.assignment import Assignment, Tensor
from headrace.oip.tensors import invalid

BATCH: Final = -1
"""The batch dimension in metadata: any size."""


class Shaped(Protocol):
    """Name, datatype and shape of an input, whichever protocol it came by."""

    @property
    def name(self) -> str:
        """Name of the input."""

    @property
    def datatype(self) -> str:
        """Datatype of its elements."""

    @property
    def shape(self) -> Sequence[int]:
        """Its dimensions, the batch first where the model batches."""


def full_shape(tensor: Tensor, assignment: Assignment) -> tuple[int, ...]:
    """Declared shape as clients see it: with the batch dimension where the model batches."""
    return (BATCH, *tensor.shape) if assignment.batching.max_batch_size else tensor.shape


def check_inputs(inputs: Sequence[Shaped], assignment: Assignment, where: str) -> None:
    """Refuse inputs that are unknown, missing, doubled, or of another type or shape."""
    if len(inputs) > limits.TENSORS:
        raise invalid(where, f"{len(inputs)} inputs; at most {limits.TENSORS}")
    declared = {tensor.name: tensor for tensor in assignment.inputs}
    seen: set[str] = set()
    batch: int | None = None
    for position, found in enumerate(inputs):
        place = f"{where}[{position}]"
        tensor = declared.get(found.name)
        if tensor is None:
            raise invalid(
                f"{place}.name",
                f"{assignment.model} has no input {found.name[:64]!r}; it has {_list(declared)}",
            )
        if found.name in seen:
            raise invalid(f"{place}.name", f"input {found.name!r} is given twice")
        seen.add(found.name)
        if found.datatype != tensor.datatype:
            raise invalid(
                f"{place}.datatype",
                f"input {found.name!r} is {tensor.datatype}, not {found.datatype[:32]}",
            )
        size = _check_shape(found.shape, tensor, assignment, f"{place}.shape")
        if batch is not None and size != batch:
            raise invalid(f"{place}.shape", f"batch of {size}, but another input has {batch}")
        batch = size
    missing = [name for name in declared if name not in seen]
    if missing:
        raise invalid(where, f"{assignment.model} needs {_list(missing)} as well")


def _check_shape(
    shape: Sequence[int], tensor: Tensor, assignment: Assignment, where: str
) -> int | None:
    """Batch size of an input, None where the model does not batch."""
    full = full_shape(tensor, assignment)
    if len(shape) != len(full) or any(
        want not in (BATCH, got) for want, got in zip(full, shape, strict=True)
    ):
        raise invalid(where, f"expected {list(full)}, got {list(shape)[: limits.TENSOR_RANK]}")
    if not assignment.batching.max_batch_size:
        return None
    if not 1 <= shape[0] <= assignment.batching.max_batch_size:
        raise invalid(
            f"{where}[0]",
            f"a batch has 1 to {assignment.batching.max_batch_size} elements, not {shape[0]}",
        )
    return shape[0]


def check_outputs(names: Sequence[str], assignment: Assignment, where: str) -> None:
    """Refuse outputs that the model does not have or that are asked for twice."""
    if len(names) > limits.TENSORS:
        raise invalid(where, f"{len(names)} outputs; at most {limits.TENSORS}")
    declared = {tensor.name for tensor in assignment.outputs}
    for position, name in enumerate(names):
        if name not in declared:
            raise invalid(
                f"{where}[{position}].name",
                f"{assignment.model} has no output {name[:64]!r}; it has {_list(sorted(declared))}",
            )
    if len(set(names)) != len(names):
        raise invalid(where, "an output is asked for twice")


def _list(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)
