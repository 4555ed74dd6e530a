"""Inference requests over gRPC: every way a message can be wrong."""

import struct
from collections.abc import Callable
from typing import Any

import pytest
from tritonclient.grpc import service_pb2 as pb

from headrace import limits
from headrace.assignment import Assignment, Batching, Tensor
from headrace.oip import grpc_request
from headrace.refusals import Refusal, Refused


def vector(datatype: str) -> Assignment:
    tensor = Tensor(name="x", datatype=datatype, shape=(-1,))
    return Assignment(
        model="m",
        version=1,
        executor="identity",
        artifact="",
        inputs=(tensor,),
        outputs=(tensor,),
        batching=Batching(
            max_batch_size=0, max_queue_delay_s=0, max_queue_size=8, queue_timeout_s=1
        ),
    )


def typed(datatype: str, field: str, values: list[Any], size: int | None = None) -> Any:
    request = pb.ModelInferRequest(model_name="m")
    shape = [len(values) if size is None else size]
    x = request.inputs.add(name="x", datatype=datatype, shape=shape)
    getattr(x.contents, field).extend(values)
    return request


def raw(datatype: str = "INT32", size: int = 2, data: bytes = bytes(8)) -> Any:
    request = pb.ModelInferRequest(model_name="m")
    request.inputs.add(name="x", datatype=datatype, shape=[size])
    request.raw_input_contents.append(data)
    return request


def changed(change: Callable[[Any], object]) -> Any:
    request = raw()
    change(request)
    return request


def refusal(request: Any, datatype: str = "INT32", *, stream: bool = False) -> Refused:
    with pytest.raises(Refused) as caught:
        grpc_request.check(request, vector(datatype), stream=stream)
    return caught.value


RIGHT: dict[str, tuple[str, list[Any], bytes]] = {
    "BOOL": ("bool_contents", [True, False], b"\x01\x00"),
    "INT8": ("int_contents", [-128, 127], b"\x80\x7f"),
    "INT16": ("int_contents", [-1, 1], struct.pack("<2h", -1, 1)),
    "INT32": ("int_contents", [-1, 1], struct.pack("<2i", -1, 1)),
    "INT64": ("int64_contents", [-1, 1], struct.pack("<2q", -1, 1)),
    "UINT8": ("uint_contents", [0, 255], b"\x00\xff"),
    "UINT16": ("uint_contents", [0, 1], bytes(4)),
    "UINT32": ("uint_contents", [0, 1], bytes(8)),
    "UINT64": ("uint64_contents", [0, 1], bytes(16)),
    "FP32": ("fp32_contents", [0.5, 1], bytes(8)),
    "FP64": ("fp64_contents", [0.5, 1], bytes(16)),
    "BYTES": ("bytes_contents", [b"", b"\xff"], b"\0\0\0\0\x01\0\0\0\xff"),
}


@pytest.mark.parametrize("datatype", RIGHT)
def test_each_datatype_is_accepted_typed_and_raw(datatype: str) -> None:
    field, values, data = RIGHT[datatype]
    grpc_request.check(typed(datatype, field, values), vector(datatype), stream=False)
    grpc_request.check(raw(datatype, 2, data), vector(datatype), stream=False)


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_half_floats_are_accepted_raw_only(datatype: str) -> None:
    grpc_request.check(raw(datatype, 2, bytes(4)), vector(datatype), stream=False)
    assert refusal(typed(datatype, "fp32_contents", [1.0]), datatype).where == "inputs[0].contents"


@pytest.mark.parametrize("datatype", ["INT32", "BYTES"])
def test_an_empty_tensor_is_accepted(datatype: str) -> None:
    request = pb.ModelInferRequest(model_name="m")
    request.inputs.add(name="x", datatype=datatype, shape=[0])
    grpc_request.check(request, vector(datatype), stream=False)


WRONG = {
    "no inputs": (changed(lambda r: r.ClearField("inputs")), "inputs"),
    "too few bytes": (raw(data=bytes(7)), "raw_input_contents[0]"),
    "no bytes": (raw(data=b""), "raw_input_contents[0]"),
    "a shape that wraps to no bytes": (raw(size=2**62, data=b""), "inputs[0].shape[0]"),
    "a negative shape": (raw(size=-2), "inputs[0].shape[0]"),
    "two buffers for one input": (
        changed(lambda r: r.raw_input_contents.append(bytes(8))),
        "raw_input_contents",
    ),
    "raw and typed": (
        changed(lambda r: r.inputs[0].contents.int_contents.append(1)),
        "inputs[0].contents",
    ),
    "neither raw nor typed": (
        changed(lambda r: r.ClearField("raw_input_contents")),
        "inputs[0].contents",
    ),
    "contents of another type": (
        typed("INT32", "int64_contents", [1, 2]),
        "inputs[0].contents",
    ),
    "too few contents": (typed("INT32", "int_contents", [1], 2), "inputs[0].contents"),
    "an unknown output": (changed(lambda r: r.outputs.add(name="w")), "outputs[0].name"),
    "a parameter without a value": (changed(lambda r: r.parameters["a"]), "parameters.a"),
    "a long id": (changed(lambda r: setattr(r, "id", "x" * 257)), "id"),
    "a priority": (
        changed(lambda r: r.parameters["priority"].MergeFrom(pb.InferParameter(int64_param=1))),
        "parameters.priority",
    ),
    "an empty final answer where there is one answer": (
        changed(
            lambda r: r.parameters["triton_enable_empty_final_response"].MergeFrom(
                pb.InferParameter(bool_param=True)
            )
        ),
        "parameters.triton_enable_empty_final_response",
    ),
    "a classification that is no count": (
        changed(
            lambda r: (
                r.outputs.add(name="x")
                .parameters["classification"]
                .MergeFrom(pb.InferParameter(string_param="1"))
            )
        ),
        "outputs[0].parameters.classification",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_invalid_field_is_named(case: str) -> None:
    request, where = WRONG[case]
    refused = refusal(request)
    assert (refused.refusal, refused.where) == (Refusal.INVALID_VALUE, where)


def test_two_types_of_contents_are_refused() -> None:
    request = typed("INT32", "int_contents", [1])
    request.inputs[0].contents.fp32_contents.append(1.0)
    assert refusal(request).where == "inputs[0].contents"


@pytest.mark.parametrize(
    ("datatype", "field", "value"),
    [
        ("INT8", "int_contents", 128),
        ("INT16", "int_contents", -(2**15) - 1),
        ("UINT8", "uint_contents", 256),
        ("UINT16", "uint_contents", 2**16),
    ],
)
def test_an_integer_that_triton_would_wrap_is_refused(
    datatype: str, field: str, value: int
) -> None:
    assert refusal(typed(datatype, field, [value]), datatype).where == "inputs[0].contents"


def test_a_stream_may_ask_for_an_empty_final_answer() -> None:
    request = raw()
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    grpc_request.check(request, vector("INT32"), stream=True)
    request.parameters["triton_enable_empty_final_response"].int64_param = 1
    assert refusal(request, stream=True).refusal is Refusal.INVALID_VALUE


def test_the_limit_on_parameters() -> None:
    request = raw()
    for number in range(limits.REQUEST_PARAMETERS + 1):
        request.parameters[f"p{number}"].bool_param = True
    assert refusal(request).where == "parameters"
