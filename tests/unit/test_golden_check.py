"""Whether an answer is the golden one, and what a question that cannot be asked means."""

from typing import Any

import msgspec
import pytest
from tritonclient.grpc import service_pb2

from headrace import limits
from headrace.refusals import Refusal, Refused
from headrace_sidecar.gpu import golden
from headrace_sidecar.gpu.agent import Check, Golden
from headrace_sidecar.gpu.setback import Setback
from headrace_sidecar.gpu.steps import Steps
from tests.fakes.sidecar_assignments import identity

ASKED = {"inputs": [{"name": "data", "datatype": "BYTES", "shape": [1], "data": ["headrace"]}]}


def question(request: Any = None, equals: str = "headrace") -> Golden:
    body = msgspec.Raw(msgspec.json.encode(ASKED if request is None else request))
    return Golden(body, (Check(output="data", index=0, equals=equals),))


class Triton:
    """Answers inference as told."""

    def __init__(self, answer: bytes | Refused) -> None:
        self.answer = answer
        self.messages: list[bytes] = []
        self.timeout_s = 0.0

    async def infer(self, message: bytes, served: object, *, timeout_s: float) -> bytes:
        self.messages.append(message)
        self.timeout_s = timeout_s
        if isinstance(self.answer, Refused):
            raise self.answer
        return self.answer


def said(text: str) -> bytes:
    response = service_pb2.ModelInferResponse(model_name="m.1")
    response.outputs.add(name="data", datatype="BYTES", shape=[1])
    response.raw_output_contents.append(len(text).to_bytes(4, "little") + text.encode())
    encoded: bytes = response.SerializeToString()
    return encoded


async def ask(triton: Triton, asked: Golden) -> None:
    await golden.ask(triton, identity("m"), asked, timeout_s=1.0)  # type: ignore[arg-type]


async def test_the_golden_answer_is_accepted() -> None:
    triton = Triton(said("headrace"))
    await ask(triton, question())
    sent = service_pb2.ModelInferRequest.FromString(triton.messages[0])
    assert sent.model_name == "m.1"


async def test_another_answer_is_a_setback_that_names_the_difference() -> None:
    with pytest.raises(Setback, match=r"data\[0\] is 'tailrace', not 'headrace'"):
        await ask(Triton(said("tailrace")), question())


async def test_no_answer_is_a_setback() -> None:
    with pytest.raises(Setback, match="it died"):
        await ask(Triton(Refused(Refusal.NOT_READY, "it died")), question())


async def test_an_answer_that_cannot_be_read_is_a_setback() -> None:
    broken = service_pb2.ModelInferResponse.FromString(said("headrace"))
    broken.raw_output_contents[0] = b"\x02\x00\x00\x00\xff\xfe"
    for answer in (b"\xff", broken.SerializeToString()):
        with pytest.raises(Setback, match="cannot be read"):
            await ask(Triton(answer), question())


async def test_a_full_queue_is_no_setback() -> None:
    with pytest.raises(golden.Busy):
        await ask(Triton(Refused(Refusal.OVERLOADED, "full")), question())


async def test_a_question_that_is_no_request_is_given_up_at_once() -> None:
    with pytest.raises(Setback) as setback:
        await ask(Triton(said("headrace")), question({"inputs": []}))
    assert setback.value.permanent


class Up:
    up, incarnation = True, 1


async def test_the_first_answer_has_its_own_time() -> None:
    triton = Triton(said("headrace"))
    steps = Steps(None, triton, Up(), now=lambda: 0.0)  # type: ignore[arg-type]
    await steps.check(identity("m"), question())
    assert triton.timeout_s == limits.GOLDEN_S


class Agent:
    restarts = 0

    async def restart_triton(self) -> None:
        self.restarts += 1


async def test_triton_is_not_restarted_again_and_again() -> None:
    agent, now_s = Agent(), 100.0
    steps = Steps(agent, None, Up(), now=lambda: now_s)  # type: ignore[arg-type]
    assert await steps.restart_triton()
    now_s += limits.TRITON_RESTART_PERIOD_S - 1.0
    assert not await steps.restart_triton()
    now_s += 1.0
    assert await steps.restart_triton()
    assert agent.restarts == steps.restarts_total == 2


@pytest.mark.parametrize(
    ("check", "outputs", "expected"),
    [
        (Check(output="x", index=0, near=0.5, tolerance=0.1), {"x": [0.55]}, ""),
        (Check(output="x", index=0, near=0.5, tolerance=0.1), {"x": [0.7]}, "x[0] is 0.7"),
        (Check(output="x", index=0, near=0.5, tolerance=0.1), {"x": [None]}, "x[0] is None"),
        (Check(output="x", index=0, near=0.5, tolerance=0.1), {"x": [float("nan")]}, "x[0] is nan"),
        (Check(output="x", index=3, equals=1), {"x": [1]}, "x[3] is missing"),
        (Check(output="y", index=0, equals=1), {"x": [1]}, "y[0] is missing"),
        (Check(output="x", index=0, equals=1), {"x": [1]}, ""),
    ],
    ids=["near", "not near", "no number", "not a number", "no element", "no output", "equal"],
)
def test_checks_of_an_answer(check: Check, outputs: dict[str, list[Any]], expected: str) -> None:
    found = golden.differences([check], outputs)
    assert [text.startswith(expected) for text in found] == ([True] if expected else [])
