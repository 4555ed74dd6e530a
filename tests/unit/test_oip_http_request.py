"""Inference requests over HTTP: every way one can be wrong, and what the right ones mean."""

import json
import struct
from typing import Any

import pytest

from headrace import limits
from headrace.assignment import Assignment, Batching, Tensor
from headrace.oip import http_request
from headrace.oip.tensors import InferRequest, Input, Output
from headrace.refusals import Refusal, Refused


def assignment(*inputs: Tensor, max_batch_size: int = 0) -> Assignment:
    return Assignment(
        model="m",
        version=1,
        executor="identity",
        artifact="",
        inputs=inputs,
        outputs=(
            Tensor(name="y", datatype="FP32", shape=(-1,)),
            Tensor(name="z", datatype="BYTES", shape=(1,)),
        ),
        batching=Batching(
            max_batch_size=max_batch_size, max_queue_delay_s=0, max_queue_size=8, queue_timeout_s=1
        ),
    )


def vector(datatype: str) -> Assignment:
    return assignment(Tensor(name="x", datatype=datatype, shape=(-1,)))


FLOATS = vector("FP32")


def given(**changes: Any) -> dict[str, Any]:
    return {"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2.5], **changes}


def parse(body: Any, model: Assignment = FLOATS, header: str | None = None) -> InferRequest:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return http_request.parse(data, header, model)


def refusal(body: Any, model: Assignment = FLOATS, header: str | None = None) -> Refused:
    with pytest.raises(Refused) as caught:
        parse(body, model, header)
    assert caught.value.message
    return caught.value


def binary(size: Any, tail: bytes) -> tuple[bytes, str]:
    x = given(parameters={"binary_data_size": size})
    del x["data"]
    head = json.dumps({"inputs": [x]}).encode()
    return head + tail, str(len(head))


def without(field: str) -> dict[str, Any]:
    x = given()
    del x[field]
    return x


INVALID: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown input": ({"inputs": [given(name="w")]}, "$.inputs[0].name"),
    "an input twice": ({"inputs": [given(), given()]}, "$.inputs[1].name"),
    "no input": ({"inputs": []}, "$.inputs"),
    "no inputs field": ({}, "$"),
    "no name": ({"inputs": [without("name")]}, "$.inputs[0]"),
    "no shape": ({"inputs": [without("shape")]}, "$.inputs[0]"),
    "no datatype": ({"inputs": [without("datatype")]}, "$.inputs[0]"),
    "no data": ({"inputs": [without("data")]}, "$.inputs[0]"),
    "another datatype": ({"inputs": [given(datatype="INT32")]}, "$.inputs[0].datatype"),
    "a datatype that is none": ({"inputs": [given(datatype="FP31")]}, "$.inputs[0].datatype"),
    "another rank": ({"inputs": [given(shape=[1, 2])]}, "$.inputs[0].shape"),
    "a negative dimension": ({"inputs": [given(shape=[-1])]}, "$.inputs[0].shape[0]"),
    "a dimension beyond 31 bits": ({"inputs": [given(shape=[2**62])]}, "$.inputs[0].shape[0]"),
    "a dimension that is no integer": ({"inputs": [given(shape=[2.0])]}, "$.inputs[0].shape[0]"),
    "a dimension that is a bool": ({"inputs": [given(shape=[True])]}, "$.inputs[0].shape[0]"),
    "too few elements": ({"inputs": [given(data=[1])]}, "$.inputs[0].data"),
    "too many elements": ({"inputs": [given(data=[1, 2, 3])]}, "$.inputs[0].data"),
    "data that is no array": ({"inputs": [given(data=1)]}, "$.inputs[0].data"),
    "a null in the data": ({"inputs": [given(data=[None, 1])]}, "$.inputs[0].data"),
    "a bool in the data": ({"inputs": [given(data=[True, 1])]}, "$.inputs[0].data"),
    "a string in the data": ({"inputs": [given(data=["1", 1])]}, "$.inputs[0].data"),
    "a number too large": ({"inputs": [given(data=[0, 1e39])]}, "$.inputs[0].data[1]"),
    "nesting that is not the shape": ({"inputs": [given(data=[[1, 2]])]}, "$.inputs[0].data"),
    "an unknown output": ({"inputs": [given()], "outputs": [{"name": "w"}]}, "$.outputs[0].name"),
    "an output twice": ({"inputs": [given()], "outputs": [{"name": "y"}] * 2}, "$.outputs"),
    "an id that is a number": ({"inputs": [given()], "id": 7}, "$.id"),
    "an id that is too long": ({"inputs": [given()], "id": "x" * 257}, "$.id"),
    "an id with a control character": ({"inputs": [given()], "id": "a\nb"}, "$.id"),
    "a parameter that is an array": (
        {"inputs": [given()], "parameters": {"a": [1]}},
        "$.parameters[...]",
    ),
    "a parameter that is an object": (
        {"inputs": [given()], "parameters": {"a": {}}},
        "$.parameters[...]",
    ),
    "a parameter beyond 64 bits": (
        {"inputs": [given()], "parameters": {"a": 2**63}},
        "$.parameters.a",
    ),
    "too many parameters": (
        {"inputs": [given()], "parameters": {str(n): n for n in range(65)}},
        "$.parameters",
    ),
    "a parameter without a name": ({"inputs": [given()], "parameters": {"": 1}}, "$.parameters."),
    "binary_data that is no bool": (
        {"inputs": [given()], "outputs": [{"name": "y", "parameters": {"binary_data": 1}}]},
        "$.outputs[0].parameters.binary_data",
    ),
    "binary_data_output that is no bool": (
        {"inputs": [given()], "parameters": {"binary_data_output": "yes"}},
        "$.parameters.binary_data_output",
    ),
    "a classification that is no count": (
        {"inputs": [given()], "outputs": [{"name": "y", "parameters": {"classification": -1}}]},
        "$.outputs[0].parameters.classification",
    ),
    "data and binary data": (
        {"inputs": [given(parameters={"binary_data_size": 8})]},
        "$.inputs[0]",
    ),
}


@pytest.mark.parametrize("case", INVALID)
def test_an_invalid_field_is_named(case: str) -> None:
    body, where = INVALID[case]
    refused = refusal(body)
    assert (refused.refusal, refused.where) == (Refusal.INVALID_VALUE, where)


@pytest.mark.parametrize(
    "name",
    ["priority", "timeout", "headers", "sequence_id", "sequence_start", "triton_x"],
)
def test_a_reserved_parameter_is_refused(name: str) -> None:
    refused = refusal({"inputs": [given()], "parameters": {name: 1}})
    assert (refused.refusal, refused.where) == (Refusal.INVALID_VALUE, f"$.parameters.{name}")


def test_shared_memory_is_not_offered() -> None:
    x = given(parameters={"shared_memory_region": "r"})
    assert refusal({"inputs": [x]}).refusal is Refusal.NOT_IMPLEMENTED


def floats(data: bytes) -> bytes:
    return b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[' + data + b"]}]}"


BAD_JSON = {
    "nothing": b"",
    "a truncated object": b'{"inputs":[',
    "NaN": floats(b"NaN"),
    "Infinity": floats(b"Infinity"),
    "negative infinity": floats(b"-Infinity"),
    "a number with a leading zero": floats(b"01"),
    "bytes after the object": b'{"inputs":[]}x',
    "bytes that are not UTF-8": b'{"inputs":[{"name":"\xff"}]}',
    "a lone surrogate": b'{"inputs":[{"name":"\\ud800"}]}',
    "a key twice": b'{"id":"a","id":"b","inputs":[]}',
    "a key twice, once escaped": b'{"id":"a","\\u0069d":"b","inputs":[]}',
    "a key twice in an input": floats(b"1").replace(b'"shape"', b'"shape":[1],"shape"'),
    "a key twice in an unknown field": b'{"inputs":[],"more":{"a":1,"a":2}}',
    "data twice": floats(b"1").replace(b'"data"', b'"data":["\\""],"data"'),
}


@pytest.mark.parametrize("case", BAD_JSON)
def test_bad_json_is_refused(case: str) -> None:
    assert refusal(BAD_JSON[case]).refusal is Refusal.INVALID_JSON


@pytest.mark.parametrize("body", [b"null", b"[]", b"7", b'"text"'])
def test_json_that_is_no_object_is_refused(body: bytes) -> None:
    assert refusal(body).refusal is Refusal.INVALID_VALUE


OUTSIDE = {
    "UINT8": (300, -1),
    "INT8": (128, -129),
    "INT16": (2**15,),
    "UINT16": (-1, 2**16),
    "INT32": (2**31,),
    "UINT32": (2**32, -1),
    "INT64": (2**63, -(2**70)),
    "UINT64": (2**64, -1),
}


@pytest.mark.parametrize(
    ("datatype", "value"), [(name, value) for name, values in OUTSIDE.items() for value in values]
)
def test_an_integer_outside_its_range_is_refused(datatype: str, value: int) -> None:
    refused = refusal({"inputs": [given(datatype=datatype, data=[1, value])]}, vector(datatype))
    assert (refused.refusal, refused.where) == (Refusal.INVALID_VALUE, "$.inputs[0].data[1]")


@pytest.mark.parametrize(
    ("datatype", "value"),
    [("BOOL", 1), ("INT32", 1.0), ("INT32", True), ("BYTES", 1), ("FP16", 1), ("BF16", 1)],
)
def test_a_value_of_another_kind_is_refused(datatype: str, value: Any) -> None:
    refused = refusal({"inputs": [given(datatype=datatype, data=[value] * 2)]}, vector(datatype))
    assert (refused.refusal, refused.where) == (Refusal.INVALID_VALUE, "$.inputs[0].data")


@pytest.mark.parametrize("size", [-1, True, 1.5, "8"])
def test_a_binary_size_that_is_no_size_is_refused(size: Any) -> None:
    body, header = binary(size, bytes(8))
    assert refusal(body, header=header).where == "$.inputs[0].parameters.binary_data_size"


@pytest.mark.parametrize(
    ("size", "tail"), [(8, bytes(7)), (8, bytes(9)), (4, bytes(4)), (0, b""), (2**63, bytes(8))]
)
def test_binary_data_that_is_not_what_was_announced_is_refused(size: int, tail: bytes) -> None:
    body, header = binary(size, tail)
    assert refusal(body, header=header).refusal is Refusal.INVALID_VALUE


@pytest.mark.parametrize("header", ["-1", "1e3", "", "9" * 20, "999", "\u0661"])
def test_a_header_length_that_is_no_part_of_the_body_is_refused(header: str) -> None:
    refused = refusal({"inputs": [given()]}, header=header)
    assert (refused.refusal, refused.where) == (
        Refusal.INVALID_VALUE,
        http_request.HEADER_LENGTH,
    )


def test_binary_data_stays_a_view_of_the_body() -> None:
    body, header = binary(8, struct.pack("<2f", 1, 2))
    (x,) = parse(body, header=header).inputs
    assert isinstance(x.data, memoryview)
    assert x.data.obj is body


@pytest.mark.parametrize(
    "data",
    [b"\x02\0\0\0a", b"\x01\0\0", b"\xff\xff\xff\xffa", b"\0\0\0\0", b"\0\0\0\0" * 3, b"\0" * 9],
)
def test_bytes_whose_lengths_do_not_fit_are_refused(data: bytes) -> None:
    x = given(datatype="BYTES", parameters={"binary_data_size": len(data)})
    del x["data"]
    head = json.dumps({"inputs": [x]}).encode()
    refused = refusal(head + data, vector("BYTES"), str(len(head)))
    assert refused.refusal is Refusal.INVALID_VALUE


def test_a_bool_is_zero_or_one() -> None:
    x = {"name": "x", "shape": [2], "datatype": "BOOL", "parameters": {"binary_data_size": 2}}
    head = json.dumps({"inputs": [x]}).encode()
    assert parse(head + b"\x00\x01", vector("BOOL"), str(len(head)))
    assert refusal(head + b"\x00\x02", vector("BOOL"), str(len(head))).where == "$.inputs[0]"


def test_a_tensor_larger_than_any_body_is_too_large() -> None:
    refused = refusal({"inputs": [given(shape=[2**31 - 1])]})
    assert refused.refusal is Refusal.REQUEST_TOO_LARGE


def test_the_limit_on_bodies() -> None:
    refused = refusal(bytes(limits.BODY_BYTES + 1))
    assert refused.refusal is Refusal.REQUEST_TOO_LARGE


def test_the_limit_on_json_depth() -> None:
    depth = limits.JSON_DEPTH
    deep = b'{"more":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b',"inputs":[]}'
    assert refusal(deep).refusal is Refusal.INVALID_VALUE
    deeper = deep.replace(b"[]", b"[[]]", 1)
    assert refusal(deeper).refusal is Refusal.INVALID_JSON


def test_brackets_in_strings_are_no_depth() -> None:
    text = '["\\' * 100
    request = parse({"inputs": [given(datatype="BYTES", data=[text, "x"])]}, vector("BYTES"))
    assert text.encode() in bytes(request.inputs[0].data)


def test_the_limit_on_elements_of_bytes() -> None:
    many = ["" for _ in range(limits.BYTES_ELEMENTS + 1)]
    x = given(datatype="BYTES", shape=[len(many)], data=many)
    assert refusal({"inputs": [x]}, vector("BYTES")).where == "$.inputs[0].data"


def test_the_limit_on_inputs() -> None:
    assert refusal({"inputs": [given()] * (limits.TENSORS + 1)}).where == "$.inputs"


def test_the_limit_on_outputs() -> None:
    body = {"inputs": [given()], "outputs": [{"name": "y"}] * (limits.TENSORS + 1)}
    assert refusal(body).where == "$.outputs"


def test_the_limit_on_rank() -> None:
    rank = limits.TENSOR_RANK + 1
    model = assignment(Tensor(name="x", datatype="FP32", shape=(1,) * rank))
    x = given(shape=[1] * rank, data=[1])
    assert refusal({"inputs": [x]}, model).where == "$.inputs[0].shape"


@pytest.mark.parametrize(
    ("shape", "where"),
    [
        ([0, 2], "$.inputs[0].shape[0]"),
        ([5, 2], "$.inputs[0].shape[0]"),
        ([1, 3], "$.inputs[0].shape"),
        ([2], "$.inputs[0].shape"),
    ],
)
def test_a_batch_outside_its_bounds_is_refused(shape: list[int], where: str) -> None:
    model = assignment(Tensor(name="x", datatype="FP32", shape=(2,)), max_batch_size=4)
    assert refusal({"inputs": [given(shape=shape)]}, model).where == where


def test_inputs_of_different_batches_are_refused() -> None:
    model = assignment(
        Tensor(name="x", datatype="FP32", shape=(1,)),
        Tensor(name="w", datatype="FP32", shape=(1,)),
        max_batch_size=4,
    )
    body = {"inputs": [given(shape=[2, 1]), given(name="w", shape=[1, 1], data=[1])]}
    assert refusal(body, model).where == "$.inputs[1].shape"


def test_a_request_is_read_as_it_was_meant() -> None:
    body = {
        "id": "seven",
        "inputs": [given()],
        "outputs": [{"name": "z", "parameters": {"classification": 3, "binary_data": False}},
                    {"name": "y"}],
        "parameters": {"binary_data_output": True, "i": 1, "f": 0.5, "s": "t", "b": False},
        "unknown": {"is": "ignored"},
    }  # fmt: skip
    assert parse(body) == InferRequest(
        inputs=(Input("x", "FP32", (2,), struct.pack("<2f", 1, 2.5)),),
        outputs=(Output("z", binary=False, classes=3), Output("y", binary=True)),
        id="seven",
        parameters={"i": 1, "f": 0.5, "s": "t", "b": False},
        binary=True,
    )


def test_the_largest_float_as_it_is_usually_written_is_accepted() -> None:
    request = parse({"inputs": [given(data=[3.4028235e38, -3.4028235e38])]})
    assert struct.unpack("<2f", request.inputs[0].data)[0] < float("inf")


@pytest.mark.parametrize(
    ("shape", "body_bytes", "expected"),
    [((-1,), 8, (2,)), ((2, -1), 24, (2, 3)), ((2,), 8, (2,)), ((-1,), 0, (0,))],
)
def test_a_raw_body_fills_the_open_dimension(
    shape: tuple[int, ...], body_bytes: int, expected: tuple[int, ...]
) -> None:
    model = assignment(Tensor(name="x", datatype="FP32", shape=shape))
    (x,) = parse(bytes(body_bytes), model, "0").inputs
    assert x.shape == expected


@pytest.mark.parametrize(
    ("shape", "body_bytes"), [((-1,), 7), ((-1, -1), 16), ((2,), 12), ((0, -1), 8)]
)
def test_a_raw_body_of_another_size_is_refused(shape: tuple[int, ...], body_bytes: int) -> None:
    model = assignment(Tensor(name="x", datatype="FP32", shape=shape))
    assert refusal(bytes(body_bytes), model, "0").where == "body"


def test_a_raw_body_is_for_models_of_one_input() -> None:
    model = assignment(
        Tensor(name="x", datatype="FP32", shape=(1,)), Tensor(name="w", datatype="FP32", shape=(1,))
    )
    assert refusal(bytes(4), model, "0").where == http_request.HEADER_LENGTH
