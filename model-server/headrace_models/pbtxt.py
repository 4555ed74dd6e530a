"""config.pbtxt of a model version: Assignment in, text out. Pure and golden-tested."""

from collections.abc import Iterable, Mapping
from typing import Final

from headrace import names
from headrace.assignment import Assignment, Batching, Tensor
from headrace.oip import priority
from headrace_models.catalogue import Executor

_MICROSECONDS: Final = 1_000_000
PRIORITIES: Final = max(priority.LEVELS.values())
SHEDDABLE: Final = priority.LEVELS["sheddable"]
_TRITON_TYPES: Final = {"BYTES": "TYPE_STRING"}


def config(assignment: Assignment, executor: Executor, parameters: Mapping[str, str]) -> str:
    """The whole file. ``parameters`` are what the executor reads besides the assignment's own."""
    batches = assignment.batching.max_batch_size > 0
    blocks = [
        f"name: {_text(names.triton_model(assignment.model, assignment.version))}",
        'backend: "python"',
        f"max_batch_size: {assignment.batching.max_batch_size}",
        *(_input(tensor, ragged=batches and executor.pads) for tensor in assignment.inputs),
        *(_block("output", _tensor(tensor)) for tensor in assignment.outputs),
        _block("instance_group", ["kind: KIND_CPU", f"count: {assignment.instances}"]),
        *([_dynamic_batching(assignment.batching)] if batches else []),
        *(
            _block(
                "parameters", [f"key: {_text(key)}", f"value {{ string_value: {_text(value)} }}"]
            )
            for key, value in sorted({**assignment.parameters, **parameters}.items())
        ),
    ]
    return "\n".join(blocks) + "\n"


def _input(tensor: Tensor, *, ragged: bool) -> str:
    lines = _tensor(tensor)
    if ragged and -1 in tensor.shape:
        lines.append("allow_ragged_batch: true")
    return _block("input", lines)


def _tensor(tensor: Tensor) -> list[str]:
    return [
        f"name: {_text(tensor.name)}",
        f"data_type: {_TRITON_TYPES.get(tensor.datatype, f'TYPE_{tensor.datatype}')}",
        f"dims: [ {', '.join(map(str, tensor.shape))} ]",
    ]


def _dynamic_batching(batching: Batching) -> str:
    """Queue policy: every level is bounded, and what is sheddable waits half as long."""
    sheddable = Batching(
        max_batch_size=batching.max_batch_size,
        max_queue_delay_s=batching.max_queue_delay_s,
        max_queue_size=max(1, batching.max_queue_size // 2),
        queue_timeout_s=batching.queue_timeout_s / 2,
    )
    return _block(
        "dynamic_batching",
        [
            f"max_queue_delay_microseconds: {_microseconds(batching.max_queue_delay_s)}",
            f"priority_levels: {PRIORITIES}",
            f"default_priority_level: {priority.LEVELS[priority.DEFAULT_TIER]}",
            _block("default_queue_policy", _queue_policy(batching)),
            *(
                _block(
                    "priority_queue_policy",
                    [f"key: {level}", _block("value", _queue_policy(policy))],
                )
                for level in range(1, PRIORITIES + 1)
                for policy in (sheddable if level == SHEDDABLE else batching,)
            ),
        ],
    )


def _queue_policy(batching: Batching) -> list[str]:
    return [
        "timeout_action: REJECT",
        f"default_timeout_microseconds: {_microseconds(batching.queue_timeout_s)}",
        "allow_timeout_override: true",
        f"max_queue_size: {batching.max_queue_size}",
    ]


def _microseconds(seconds: float) -> int:
    return round(seconds * _MICROSECONDS)


def _block(name: str, lines: Iterable[str]) -> str:
    inner = "\n".join(lines).replace("\n", "\n  ")
    return f"{name} {{\n  {inner}\n}}"


def _text(value: str) -> str:
    """A protobuf text literal: bytes outside printable ASCII as octal escapes."""
    escaped = "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}"
        for byte in value.encode()
    )
    return f'"{escaped}"'
