"""Streams of the gRPC front door before a real Triton: order, errors, ends."""

import asyncio
import struct
from typing import Any

import grpc
import grpc.aio
import msgspec
import pytest
from tritonclient.grpc import service_pb2 as pb

from headrace import headers, limits
from headrace.refusals import Refusal
from tests.fakes import grpc_calls, lab_models
from tests.fakes.front_door import FrontDoor, front_door
from tests.fakes.grpc_calls import (
    SERVICE,
    ask,
    call,
    marks_of,
    open_stream,
    refusal_of,
    rest,
    until,
    until_idle,
)
from tests.fakes.triton_process import TritonProcess, running_triton

pytestmark = pytest.mark.e2e

Code = grpc.StatusCode


async def test_a_stream_answers_each_request_under_its_id(door: FrontDoor) -> None:
    stream = open_stream(door)
    for number in range(20):
        await stream.write(ask([number], request_id=str(number)))
    await stream.done_writing()
    answers = await rest(stream)
    assert {answer.infer_response.id: answer.infer_response.raw_output_contents[0]
            for answer in answers} == {str(n): struct.pack("<i", n) for n in range(20)}  # fmt: skip
    assert {answer.infer_response.model_name for answer in answers} == {"echo-int32"}
    assert await stream.code() is Code.OK


async def test_an_error_inside_a_stream_keeps_it_alive(
    door: FrontDoor, triton: TritonProcess
) -> None:
    stream = open_stream(door)
    for wrong in (
        ask([1], model="none", request_id="a"),
        _with_id(grpc_calls.mixed()),
        _with_id(grpc_calls.no_data()),
    ):
        await stream.write(wrong)
        answer = await stream.read()
        assert answer.error_message
        assert answer.infer_response.id == "a"
    await stream.write(ask([7]))
    answer = await stream.read()
    assert (answer.error_message, len(answer.infer_response.raw_output_contents)) == ("", 1)
    await stream.done_writing()
    assert await rest(stream) == []
    assert await stream.code() is Code.OK
    assert triton.alive


def _with_id(request: Any) -> Any:
    request.id = "a"
    return request


async def test_garbage_inside_a_stream_is_an_error_of_that_request(door: FrontDoor) -> None:
    stream = door.channel.stream_stream(f"{SERVICE}ModelStreamInfer")()
    await stream.write(b"\xff\xff")
    answer = pb.ModelStreamInferResponse.FromString(await stream.read())
    assert answer.error_message.startswith(Refusal.INVALID_VALUE.code)
    stream.cancel()


def many(count: int, size: int, *, empty_final: bool = False) -> Any:
    request = pb.ModelInferRequest(model_name="many", id="m")
    request.inputs.add(name="count", datatype="INT32", shape=[2])
    request.raw_input_contents.append(struct.pack("<2i", count, size))
    if empty_final:
        request.parameters["triton_enable_empty_final_response"].bool_param = True
    return request


@pytest.mark.parametrize("empty_final", [False, True])
async def test_many_answers_to_one_request_come_in_order(
    door: FrontDoor, empty_final: bool
) -> None:
    stream = open_stream(door)
    await stream.write(many(50, 1, empty_final=empty_final))
    await stream.done_writing()
    answers = await rest(stream)
    data = [a.infer_response.raw_output_contents[0] for a in answers[:50]]
    assert data == [bytes([number]) for number in range(50)]
    finals = [a.infer_response.parameters["triton_final_response"].bool_param for a in answers[50:]]
    assert finals == ([True] if empty_final else [])
    served = door.serving.find("many", 1)
    assert (served.in_flight, served.completed_total) == (0, 1)


async def test_past_stream_buffer_bytes_a_slow_reader_is_cut_off_and_its_work_ends(
    door: FrontDoor,
) -> None:
    stream = open_stream(door)
    count, size = 2_000, 160_000
    assert count * size > 4 * limits.STREAM_BUFFER_BYTES
    await stream.write(many(count, size))
    served = door.serving.find("many", 1)
    await until(lambda: served.failed_total == 1)
    assert served.in_flight == 0
    answers = []
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        answers = await rest(stream)
    assert len(answers) < 2_000
    assert caught.value.code() is Code.RESOURCE_EXHAUSTED
    assert (caught.value.details() or "").startswith(Refusal.SLOW_READER.code)


async def test_a_cancelled_stream_ends_every_request_in_it(
    door: FrontDoor, triton: TritonProcess
) -> None:
    log = triton.folder / "slow.log"
    log.write_text("")
    stream = open_stream(door)
    await stream.write(ask([10_000], model="slow"))
    await until(lambda: "began" in log.read_text())
    stream.cancel()
    await until(lambda: "cancelled" in log.read_text())
    await until(lambda: door.serving.in_flight == 0)
    assert door.serving.find("slow", 1).abandoned_total == 1


async def test_an_idle_stream_ends_when_the_node_drains(door: FrontDoor) -> None:
    stream = open_stream(door)
    await stream.write(ask([1]))
    await stream.read()
    door.serving.draining = True
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await rest(stream)
    assert caught.value.code() is Code.UNAVAILABLE
    assert marks_of(caught.value)[headers.REFUSED] == Refusal.DRAINING.code


async def test_what_is_inside_a_stream_finishes_when_the_node_drains(door: FrontDoor) -> None:
    stream = open_stream(door)
    await stream.write(ask([300], model="slow"))
    await until(lambda: door.serving.in_flight == 1)
    door.serving.draining = True
    answer = await stream.read()
    assert answer.infer_response.model_name == "slow"
    stream.cancel()


async def test_the_limit_on_unanswered_requests_of_a_stream(triton: TritonProcess) -> None:
    batching = msgspec.structs.replace(lab_models.SLOW.batching, max_queue_size=9_999)
    patient = msgspec.structs.replace(lab_models.SLOW, batching=batching)
    async with front_door(triton.target, [patient]) as door:
        served = door.serving.find("slow", 1)
        stream = open_stream(door)
        for _ in range(limits.STREAM_REQUESTS + 10):
            await stream.write(ask([10_000], model="slow"))
        await until(lambda: served.in_flight == limits.STREAM_REQUESTS)
        # A call made now is answered after whatever the stream could still have let in.
        await call(door, "ServerLive", pb.ServerLiveRequest())
        assert served.in_flight == limits.STREAM_REQUESTS
        stream.cancel()
        await until(lambda: served.in_flight == 0)
    await until_idle(triton)


async def test_a_dead_stub_is_told_inside_the_stream_and_reported(triton: TritonProcess) -> None:
    async with front_door(triton.target, lab_models.ALL) as door:
        deaths: list[str] = []
        door.triton.on_stub_death = deaths.append
        stream = open_stream(door)
        await stream.write(ask([1], model="crash", request_id="c"))
        answer = await stream.read()
        assert answer.error_message.startswith(Refusal.NOT_READY.code)
        assert (answer.infer_response.id, deaths) == ("c", ["crash.1"])
        stream.cancel()


async def test_a_stream_outlives_its_triton(triton: TritonProcess) -> None:
    with running_triton() as mortal:
        lab_models.install_only(mortal, lab_models.SLOW)
        async with front_door(mortal.target, [lab_models.SLOW]) as door:
            stream = open_stream(door)
            await stream.write(ask([10_000], model="slow"))
            await until(lambda: "began" in (mortal.folder / "slow.log").read_text())
            mortal.kill()
            lost = await stream.read()
            assert lost.error_message.startswith(Refusal.UPSTREAM_RESET.code)
            await stream.write(ask([1], model="slow"))
            assert (await stream.read()).error_message.startswith(Refusal.NOT_READY.code)
            await door.triton.reconnect(triton.target)
            await stream.write(ask([1], model="slow"))
            assert not (await stream.read()).error_message
            stream.cancel()


async def test_calls_to_a_replaced_triton_end_as_lost(
    door: FrontDoor, triton: TritonProcess
) -> None:
    (triton.folder / "slow.log").write_text("")
    stream = open_stream(door)
    await stream.write(ask([10_000], model="slow"))
    unary = asyncio.create_task(refusal_of(door, ask([10_000], model="slow")))
    await until(lambda: door.serving.in_flight == 2)
    await door.triton.reconnect(triton.target)
    code, metadata = await unary
    assert (code, headers.REFUSED in metadata) == (Code.UNAVAILABLE, False)
    assert (await stream.read()).error_message.startswith(Refusal.UPSTREAM_RESET.code)
    assert door.serving.in_flight == 0
    stream.cancel()
    await until_idle(triton)


async def test_the_limit_on_responses(door: FrontDoor) -> None:
    stream = open_stream(door)
    await stream.write(many(1, limits.RESPONSE_BYTES + 1))
    answer = await stream.read()
    assert answer.error_message.startswith(Refusal.INTERNAL.code)
    stream.cancel()


async def test_a_stream_ends_with_its_deadline(door: FrontDoor) -> None:
    stream = open_stream(door, timeout=0.2)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await rest(stream)
    assert caught.value.code() is Code.DEADLINE_EXCEEDED
