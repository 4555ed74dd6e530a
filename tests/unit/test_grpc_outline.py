"""The outline of a gRPC message says what decoding it would, and stops at what is none."""

import struct

import pytest
from tritonclient.grpc import service_pb2 as pb

from headrace import limits
from headrace.oip.grpc_outline import outline
from headrace.refusals import Refusal, Refused


def message(size: int = 10) -> bytes:
    request = pb.ModelInferRequest(model_name="m", model_version="3", id="i")
    request.inputs.add(name="data", datatype="UINT8", shape=[size])
    request.parameters["p"].double_param = 0.5
    request.raw_input_contents.append(bytes(size))
    data: bytes = request.SerializeToString()
    return data


def test_tensors_are_told_apart_from_the_rest() -> None:
    seen = outline(message(100_000))
    assert (seen.model, seen.version) == ("m", "3")
    assert seen.structured_bytes == len(message(100_000)) - 100_000


def test_the_last_name_counts_as_it_does_to_a_decoder() -> None:
    twice = message() + bytes(pb.ModelInferRequest(model_name="other").SerializeToString())
    assert outline(twice).model == pb.ModelInferRequest.FromString(twice).model_name == "other"


def test_a_name_of_any_length_is_cut_but_longer_than_a_name() -> None:
    long = pb.ModelInferRequest(model_name="n" * 10_000).SerializeToString()
    assert len(outline(long).model) == limits.MODEL_NAME_LENGTH + 1


def test_every_kind_of_field_is_walked_over() -> None:
    odd = b"\x78\x96\x01" + b"\x79" + bytes(8) + b"\x7d" + bytes(4) + b"\x7a\x02ab"
    assert outline(odd + message()).model == "m"


@pytest.mark.parametrize(
    "wrong",
    [
        message()[:-1],
        b"\x0a",
        b"\x0a\xff\xff\xff\xff\x7f",
        b"\xff" * 30,
        b"\x00",
        b"\x0b\x0c",
        b"\x0a\x01\xff",
        b"\x79\x00",
    ],
)
def test_what_cannot_be_decoded_is_refused(wrong: bytes) -> None:
    with pytest.raises(Refused) as caught:
        outline(wrong)
    assert caught.value.refusal is Refusal.INVALID_VALUE


def test_the_limit_grpc_fields() -> None:
    name = struct.pack("BB1s", 0x0A, 1, b"m")
    assert outline(name + b"\x3a\x00" * (limits.GRPC_FIELDS - 1)).model == "m"
    with pytest.raises(Refused):
        outline(name + b"\x3a\x00" * limits.GRPC_FIELDS)
