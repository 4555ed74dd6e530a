"""Answers and messages of the front doors: marks of refusals, and what is appended to messages."""

import json

import pytest
from tritonclient.grpc import service_pb2

from headrace import headers
from headrace.refusals import Refusal, Refused
from headrace_sidecar.gpu import grpc_answer, http_answer, messages


@pytest.mark.parametrize("refusal", Refusal)
def test_every_refusal_has_its_status_code_and_marks(refusal: Refusal) -> None:
    response = http_answer.refusal(Refused(refusal, "no", where="x"))
    assert isinstance(response.body, bytes)
    body = json.loads(response.body)
    assert (response.status, body["code"], body["where"]) == (refusal.http, refusal.code, "x")
    assert response.headers[headers.REFUSED] == refusal.code
    assert (headers.RETRY in response.headers) == refusal.elsewhere
    assert ("Retry-After" in response.headers) == (refusal.http in (429, 503))
    marks = dict(grpc_answer.marks(Refused(refusal, "no")))
    assert marks[headers.REFUSED] == refusal.code
    assert (marks.get(headers.RETRY) == headers.RETRY_SAFE) == refusal.elsewhere
    assert (grpc_answer.PUSHBACK in marks) == (refusal.grpc == 14)


def test_an_illness_is_not_marked_as_a_refusal() -> None:
    refused = Refused(Refusal.UPSTREAM_RESET, "gone", elsewhere=True, sick=True)
    assert headers.REFUSED not in http_answer.refusal(refused).headers
    assert dict(grpc_answer.marks(refused))[headers.RETRY] == headers.RETRY_SAFE
    assert headers.REFUSED not in dict(grpc_answer.marks(refused))


def test_the_wait_is_told_in_whole_seconds_over_http_and_in_milliseconds_over_grpc() -> None:
    refused = Refused(Refusal.OVERLOADED, "full", retry_after_s=2.4)
    assert http_answer.refusal(refused).headers["Retry-After"] == "2"
    assert dict(grpc_answer.marks(refused))[grpc_answer.PUSHBACK] == "2400"


def test_what_is_appended_to_a_request_wins_over_what_the_caller_wrote() -> None:
    request = service_pb2.ModelInferRequest(model_name="m", model_version="7", id="i")
    request.parameters["priority"].string_param = "mine"
    request.raw_input_contents.append(b"data")
    suffix = messages.address("m.1", priority=3, timeout_us=250_000)
    found = messages.parse_request(request.SerializeToString() + suffix)
    assert (found.model_name, found.model_version, found.id) == ("m.1", "", "i")
    assert found.parameters["priority"].int64_param == 3
    assert found.parameters["timeout"].int64_param == 250_000
    assert list(found.raw_input_contents) == [b"data"]


def test_what_is_appended_to_a_response_names_the_callers_model() -> None:
    response = service_pb2.ModelInferResponse(model_name="m.3", model_version="1", id="i")
    inside = service_pb2.ModelStreamInferResponse(infer_response=response)
    found = messages.parse_response(response.SerializeToString() + messages.sender("m", 3))
    streamed = service_pb2.ModelStreamInferResponse.FromString(
        inside.SerializeToString() + messages.stream_sender("m", 3)
    ).infer_response
    for one in (found, streamed):
        assert (one.model_name, one.model_version, one.id) == ("m", "3", "i")
