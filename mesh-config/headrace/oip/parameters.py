"""Parameters of a request: which the mesh keeps for itself, and which values may pass."""

from collections.abc import Mapping
from typing import Final

from headrace import limits
from headrace.oip.tensors import Scalar, invalid
from headrace.refusals import Refusal, Refused

BINARY_DATA: Final = "binary_data"
BINARY_DATA_SIZE: Final = "binary_data_size"
BINARY_OUTPUT: Final = "binary_data_output"
CLASSIFICATION: Final = "classification"
EMPTY_FINAL: Final = "triton_enable_empty_final_response"
FINAL: Final = "triton_final_response"
PRIORITY: Final = "priority"
TIMEOUT: Final = "timeout"

_RESERVED: Final = {
    PRIORITY: "the caller's tier sets the priority",
    TIMEOUT: "the deadline of the call sets the timeout",
    "headers": "headers are not forwarded to models",
    "sequence_id": "sequences are not supported",
    "sequence_start": "sequences are not supported",
    "sequence_end": "sequences are not supported",
}
_SHARED_MEMORY: Final = "shared_memory_"
_TRITON: Final = "triton_"
_NAME_LENGTH: Final = 256
_INT64: Final = range(-(2**63), 2**63)


def check(parameters: Mapping[str, Scalar], where: str) -> None:
    """Refuse parameters that are reserved, too many, or that no wire type holds."""
    if len(parameters) > limits.REQUEST_PARAMETERS:
        raise invalid(where, f"{len(parameters)} parameters; at most {limits.REQUEST_PARAMETERS}")
    for name, value in parameters.items():
        check_name(name, f"{where}.{name[:_NAME_LENGTH]}")
        if isinstance(value, int) and value not in _INT64:
            raise invalid(f"{where}.{name}", "an integer parameter has at most 64 bits")


def check_name(name: str, where: str) -> None:
    """Refuse a parameter's name that the mesh or Triton keeps for itself."""
    if name in _RESERVED:
        raise invalid(where, f"{name} is reserved: {_RESERVED[name]}")
    if name.startswith(_TRITON):
        raise invalid(where, f"names that begin with {_TRITON} are reserved")
    if name.startswith(_SHARED_MEMORY):
        raise Refused(
            Refusal.NOT_IMPLEMENTED,
            f"{where}: shared memory is not offered over the network; send the data itself",
            where=where,
        )
    if not name or len(name) > _NAME_LENGTH:
        raise invalid(where, f"a parameter's name has 1 to {_NAME_LENGTH} characters")
