"""An inference request over gRPC, checked in place: its message goes on as it came.

The message is one of tritonclient's, described here by protocols only: the core knows no gRPC.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from headrace import limits
from headrace.assignment import Assignment
from headrace.oip import declared, identifiers, parameters
from headrace.oip.datatypes import DATATYPES, Datatype, Kind
from headrace.oip.tensors import check_data, element_count, invalid


class Parameter(Protocol):
    """``inference.InferParameter``."""

    def WhichOneof(self, group: str) -> str | None:  # noqa: N802 (protobuf's name)
        """Name of the field that is set."""


class InputTensor(declared.Shaped, Protocol):
    """``ModelInferRequest.InferInputTensor``."""

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """Parameters of the tensor."""

    @property
    def contents(self) -> object:
        """Typed contents."""

    def HasField(self, name: str) -> bool:  # noqa: N802 (protobuf's name)
        """Whether a message field is set."""


class OutputTensor(Protocol):
    """``ModelInferRequest.InferRequestedOutputTensor``."""

    @property
    def name(self) -> str:
        """Name of the output."""

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """Parameters of the output."""


class ModelInferRequest(Protocol):
    """``inference.ModelInferRequest``."""

    @property
    def id(self) -> str:
        """Request id."""

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """Parameters of the request."""

    @property
    def inputs(self) -> Sequence[InputTensor]:
        """Inputs."""

    @property
    def outputs(self) -> Sequence[OutputTensor]:
        """Outputs asked for."""

    @property
    def raw_input_contents(self) -> Sequence[bytes]:
        """Raw bytes of each input."""


_CONTENTS: Final = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
_FIELDS: Final = tuple(dict.fromkeys(_CONTENTS.values()))
_CLASSES: Final = frozenset({"int64_param", "uint64_param"})


def check(request: ModelInferRequest, assignment: Assignment, *, stream: bool) -> None:
    """Refuse a request that Triton must not see."""
    identifiers.check_id(request.id, "id")
    _check_parameters(request.parameters, "parameters", stream=stream)
    declared.check_inputs(request.inputs, assignment, "inputs")
    declared.check_outputs([output.name for output in request.outputs], assignment, "outputs")
    for position, output in enumerate(request.outputs):
        _check_output(output, f"outputs[{position}].parameters")
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise invalid("raw_input_contents", f"{len(raw)} buffers for {len(request.inputs)} inputs")
    for position, given in enumerate(request.inputs):
        where = f"inputs[{position}]"
        if given.parameters:
            _check_parameters(given.parameters, f"{where}.parameters", stream=False)
        datatype = DATATYPES[given.datatype]
        count = element_count(given.shape, datatype, f"{where}.shape")
        if raw:
            if given.HasField("contents"):
                raise invalid(f"{where}.contents", "contents and raw_input_contents are mixed")
            check_data(raw[position], count, datatype, f"raw_input_contents[{position}]")
        else:
            _check_contents(given.contents, count, datatype, f"{where}.contents")


def _check_parameters(options: Mapping[str, Parameter], where: str, *, stream: bool) -> None:
    if len(options) > limits.REQUEST_PARAMETERS:
        raise invalid(where, f"{len(options)} parameters")
    for name, value in options.items():
        place = f"{where}.{name[:64]}"
        if stream and name == parameters.EMPTY_FINAL:
            if value.WhichOneof("parameter_choice") != "bool_param":
                raise invalid(place, "must be a bool_param")
            continue
        parameters.check_name(name, place)
        if value.WhichOneof("parameter_choice") is None:
            raise invalid(place, "has no value")


def _check_output(output: OutputTensor, where: str) -> None:
    for name, value in output.parameters.items():
        parameters.check_name(name, where)
        if name == parameters.CLASSIFICATION and (
            value.WhichOneof("parameter_choice") not in _CLASSES
        ):
            raise invalid(f"{where}.{name}", "must be how many labels to return")


def _check_contents(contents: object, count: int, datatype: Datatype, where: str) -> None:
    if datatype.kind is Kind.HALF:
        raise invalid(where, f"{datatype.name} has no typed contents; send raw_input_contents")
    field = _CONTENTS[datatype.name]
    values = getattr(contents, field)
    if len(values) != count:
        raise invalid(where, f"{len(values)} elements in {field}, but the shape holds {count}")
    for other in _FIELDS:
        if other != field and len(getattr(contents, other)):
            raise invalid(where, f"{other} holds no {datatype.name}; use {field}")
    narrow = datatype.itemsize in (1, 2) and datatype.kind is Kind.INTEGER
    # Four bytes travel for these; Triton would keep the lowest and say nothing.
    if narrow and values and not datatype.low <= min(values) <= max(values) <= datatype.high:
        raise invalid(where, f"{datatype.name} holds {datatype.low} to {datatype.high}")
