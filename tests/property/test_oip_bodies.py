"""Bodies of inference requests: what is sent is what is read, and nothing hostile gets through."""

import json
import math
import struct
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.assignment import Assignment, Batching, Tensor
from headrace.oip import http_request, http_response, json_guard
from headrace.oip.datatypes import DATATYPES, Kind
from headrace.oip.http_response import Result
from headrace.oip.tensors import InferRequest, split_bytes_elements
from headrace.refusals import Refused
from headrace_sidecar.gpu import messages

DTYPES = [name for name, datatype in DATATYPES.items() if datatype.kind is not Kind.HALF]


def model(datatype: str, rank: int) -> Assignment:
    tensor = Tensor(name="x", datatype=datatype, shape=(-1,) * rank)
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


def element(datatype: str) -> st.SearchStrategy[Any]:
    match DATATYPES[datatype].kind:
        case Kind.BOOL:
            return st.booleans()
        case Kind.INTEGER:
            return st.integers(DATATYPES[datatype].low, DATATYPES[datatype].high)
        case Kind.BYTES:
            return st.text(max_size=8)
        case _:
            if datatype == "FP32":
                return st.floats(allow_nan=False, allow_infinity=False, width=32)
            return st.floats(allow_nan=False, allow_infinity=False)


def nest(values: list[Any], shape: list[int]) -> list[Any]:
    if len(shape) == 1:
        return values
    size = math.prod(shape[1:])
    return [nest(values[at * size : (at + 1) * size], shape[1:]) for at in range(shape[0])]


@st.composite
def tensors(draw: st.DrawFn) -> tuple[str, list[int], list[Any]]:
    datatype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    count = math.prod(shape)
    values = draw(st.lists(element(datatype), min_size=count, max_size=count))
    return datatype, shape, values


def answer(request: InferRequest, shape: list[int], *, binary: bool) -> tuple[bytes, int | None]:
    """What the front door makes of a request that a model sends back unchanged."""
    (x,) = request.inputs
    asked = InferRequest(inputs=request.inputs, binary=binary)
    result = Result("x", x.datatype, shape, bytes(x.data))
    return http_response.render(asked, [result], {}, model="m", version=1)


@given(tensors(), st.booleans())
def test_json_comes_back_as_it_was_sent(
    tensor: tuple[str, list[int], list[Any]], nested: bool
) -> None:
    datatype, shape, values = tensor
    data = nest(values, shape) if nested else values
    x = {"name": "x", "datatype": datatype, "shape": shape, "data": data}
    body = json.dumps({"inputs": [x]}, ensure_ascii=nested).encode()
    if nested and 0 in shape[:-1]:
        return  # An empty outer array does not show how deep it is nested.
    request = http_request.parse(body, None, model(datatype, len(shape)))
    rendered, header_bytes = answer(request, shape, binary=False)
    assert header_bytes is None
    assert json.loads(rendered)["outputs"][0] == {**x, "data": values}


@given(tensors())
def test_binary_comes_back_as_it_was_sent(tensor: tuple[str, list[int], list[Any]]) -> None:
    datatype, shape, values = tensor
    assignment = model(datatype, len(shape))
    x = {"name": "x", "datatype": datatype, "shape": shape}
    body = json.dumps({"inputs": [{**x, "data": values}]}).encode()
    raw = bytes(http_request.parse(body, None, assignment).inputs[0].data)
    head = json.dumps({"inputs": [{**x, "parameters": {"binary_data_size": len(raw)}}]}).encode()
    request = http_request.parse(head + raw, str(len(head)), assignment)
    rendered, header_bytes = answer(request, shape, binary=True)
    assert header_bytes is not None
    assert rendered[header_bytes:] == raw
    message = messages.parse_request(messages.encode(request, messages.address("m.1", priority=2)))
    assert (message.model_name, message.model_version) == ("m.1", "")
    assert list(message.raw_input_contents) == [raw]
    assert list(message.inputs[0].shape) == shape


@given(st.lists(st.binary(max_size=20)))
def test_elements_of_bytes_are_split_where_they_were_joined(elements: list[bytes]) -> None:
    joined = b"".join(struct.pack("<I", len(one)) + one for one in elements)
    assert split_bytes_elements(joined) == elements


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["x", "FP32", "BYTES", "INT8", -1, 2**62, 1e39]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["inputs", "outputs", "name", "shape", "datatype", "data", "parameters", "id"]
            )
            | st.text(max_size=3),
            inner,
            max_size=6,
        )
    ),
    max_leaves=30,
)
ALMOST = st.fixed_dictionaries(
    {},
    optional={
        "inputs": st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "name": st.just("x") | JSON,
                    "shape": st.lists(st.integers(-2, 4) | JSON, max_size=3),
                    "datatype": st.sampled_from(DTYPES) | JSON,
                    "data": JSON,
                    "parameters": st.dictionaries(st.just("binary_data_size"), JSON) | JSON,
                },
            ),
            max_size=3,
        ),
        "outputs": JSON,
        "id": JSON,
        "parameters": JSON,
    },
)


def check_accepted(request: InferRequest) -> None:
    """What a Triton may see: every tensor has the bytes that its shape says."""
    for tensor in request.inputs:
        datatype = DATATYPES[tensor.datatype]
        assert all(size >= 0 for size in tensor.shape)
        if datatype.itemsize:
            assert len(tensor.data) == math.prod(tensor.shape) * datatype.itemsize
        else:
            assert len(split_bytes_elements(tensor.data)) == math.prod(tensor.shape)


@settings(max_examples=150)
@given(JSON | ALMOST, st.binary(max_size=20), st.none() | st.integers(-1, 400))
def test_hostile_json_is_refused_or_sound(value: Any, tail: bytes, header: int | None) -> None:
    body = json.dumps(value).encode() + (b"" if header is None else tail)
    for datatype in ("FP32", "BYTES", "INT8"):
        try:
            request = http_request.parse(
                body, None if header is None else str(header), model(datatype, 1)
            )
        except Refused:
            continue
        check_accepted(request)


@settings(max_examples=200)
@given(st.binary(max_size=200), st.none() | st.text(max_size=6))
def test_hostile_bytes_are_refused_or_sound(body: bytes, header: str | None) -> None:
    for datatype in ("UINT8", "BYTES"):
        try:
            request = http_request.parse(body, header, model(datatype, 1))
        except Refused:
            continue
        check_accepted(request)


def depth(value: Any) -> int:
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 0


@given(JSON, st.integers(50, 70))
def test_depth_is_counted_as_a_parser_would(value: Any, wraps: int) -> None:
    for number in range(wraps):
        value = [value, []] if number % 2 else {'"[\\': value, "b": [{}]}
    body = json.dumps(value).encode()
    try:
        json_guard.check_depth(body)
    except Refused:
        assert depth(value) > 64
    else:
        assert depth(value) <= 64


@given(JSON)
def test_strings_are_counted_as_a_parser_would(value: Any) -> None:
    def count(inner: Any) -> int:
        if isinstance(inner, list):
            return sum(map(count, inner))
        if isinstance(inner, dict):
            return len(inner) + sum(map(count, inner.values()))
        return int(isinstance(inner, str))

    assert json_guard.count_strings(json.dumps(value).encode()) == count(value)
