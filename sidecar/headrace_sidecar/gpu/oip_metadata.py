"""What the node says about itself and its models, for both front doors.

Metadata comes from the assignments, so that it can be read while a model is loading. Configuration
and statistics come from Triton, with the names that callers know.
"""

from collections.abc import Sequence
from typing import Any, Final

from google.protobuf.message import Message

import headrace
from headrace.oip.declared import full_shape
from headrace_sidecar.gpu.serving import Served, Serving
from headrace_sidecar.gpu.triton import Triton

SERVER_NAME: Final = "headrace"
SERVER_VERSION: Final = getattr(headrace, "__version__", "0.1.0")
EXTENSIONS: Final = (
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "statistics",
)
PLATFORM: Final = "python"


def server() -> dict[str, Any]:
    """Metadata of the server."""
    return {"name": SERVER_NAME, "version": SERVER_VERSION, "extensions": list(EXTENSIONS)}


def model(serving: Serving, served: Served) -> dict[str, Any]:
    """Metadata of a model: the versions on this node, inputs and outputs of the one asked for."""
    assignment = served.assignment
    return {
        "name": assignment.model,
        "versions": [str(version) for version in sorted(serving.versions(assignment.model))],
        "platform": PLATFORM,
        "inputs": [
            {
                "name": tensor.name,
                "datatype": tensor.datatype,
                "shape": list(full_shape(tensor, assignment)),
            }
            for tensor in assignment.inputs
        ],
        "outputs": [
            {
                "name": tensor.name,
                "datatype": tensor.datatype,
                "shape": list(full_shape(tensor, assignment)),
            }
            for tensor in assignment.outputs
        ],
    }


async def config(triton: Triton, served: Served) -> Any:
    """ModelConfigResponse with the caller's name of the model."""
    answer = await triton.config(served.triton_model)
    answer.config.name = served.assignment.model
    return answer


async def statistics(triton: Triton, served: Sequence[Served]) -> Any:
    """ModelStatisticsResponse of some versions, with the caller's names."""
    merged: Any = None
    for one in served:
        answer = await triton.statistics(one.triton_model)
        for stats in answer.model_stats:
            stats.name, stats.version = one.assignment.model, str(one.assignment.version)
        if merged is None:
            merged = answer
        else:
            merged.MergeFrom(answer)
    return merged


def plain(message: Message) -> dict[str, Any]:
    """JSON-able value of a message: every field, 64-bit integers as numbers, enums by name.

    (protobuf's own JSON writes 64-bit integers as strings; Triton's HTTP API does not.)
    """
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            found[field.name] = {str(key): _value(value[key], field) for key in value}
        elif field.is_repeated:
            found[field.name] = [_value(one, field) for one in value]
        elif field.message_type is None or message.HasField(field.name):
            found[field.name] = _value(value, field)
    return found


def _value(value: Any, field: Any) -> Any:
    if isinstance(value, Message):
        return plain(value)
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    return value
