"""The gRPC front door before a real Triton: calls, streams, refusals and their marks."""

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc
import grpc.aio
import msgspec
import pytest
from google.protobuf.wrappers_pb2 import Int32Value, StringValue
from tritonclient.grpc import service_pb2 as pb

from headrace import headers, limits
from headrace.refusals import Refusal
from tests.fakes import lab_models
from tests.fakes.front_door import FrontDoor, front_door
from tests.fakes.triton_process import TritonProcess, running_triton

pytestmark = pytest.mark.e2e

SERVICE = "/inference.GRPCInferenceService/"
Code = grpc.StatusCode


@pytest.fixture(scope="module")
def triton() -> Iterator[TritonProcess]:
    with running_triton() as triton:
        lab_models.install(triton)
        yield triton


@pytest.fixture
async def door(triton: TritonProcess) -> AsyncIterator[FrontDoor]:
    async with front_door(triton.target, lab_models.ALL) as door:
        yield door


def ask(
    values: list[int], *, model: str = "echo-int32", request_id: str = "", raw: bool = True
) -> Any:
    request = pb.ModelInferRequest(model_name=model, id=request_id)
    request.inputs.add(name="data", datatype="INT32", shape=[len(values)])
    if raw:
        request.raw_input_contents.append(struct.pack(f"<{len(values)}i", *values))
    else:
        request.inputs[0].contents.int_contents.extend(values)
    return request


async def call(door: FrontDoor, method: str, request: Any, **options: Any) -> Any:
    answer = getattr(pb, f"{method}Response")
    unary = door.channel.unary_unary(
        SERVICE + method, lambda message: message.SerializeToString(), answer.FromString
    )
    return await unary(request, timeout=10, **options)


async def refusal_of(door: FrontDoor, request: Any, **options: Any) -> tuple[Any, dict[str, Any]]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(door, "ModelInfer", request, **options)
    return caught.value.code(), marks_of(caught.value)


def marks_of(error: grpc.aio.AioRpcError) -> dict[str, Any]:
    trailers: Any = error.trailing_metadata()
    return dict(trailers)


def open_stream(door: FrontDoor, **options: Any) -> Any:
    return door.channel.stream_stream(
        f"{SERVICE}ModelStreamInfer",
        lambda message: message.SerializeToString(),
        pb.ModelStreamInferResponse.FromString,
    )(**options)


async def rest(stream: Any) -> list[Any]:
    answers = []
    while (answer := await stream.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
        answers.append(answer)
    return answers


async def until(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("raw", [True, False])
async def test_an_inference_comes_back_under_the_callers_names(door: FrontDoor, raw: bool) -> None:
    answer = await call(door, "ModelInfer", ask([1, 2, -3], request_id="seven", raw=raw))
    assert (answer.model_name, answer.model_version, answer.id) == ("echo-int32", "1", "seven")
    assert answer.raw_output_contents == [struct.pack("<3i", 1, 2, -3)]


async def test_eight_megabytes_pass(door: FrontDoor) -> None:
    values = [7] * (2 * 2**20)
    answer = await call(door, "ModelInfer", ask(values))
    assert len(answer.raw_output_contents[0]) == 8 * 2**20


async def test_a_message_over_the_limit_is_refused(door: FrontDoor) -> None:
    code, _ = await refusal_of(door, ask([7] * (limits.BODY_BYTES // 4 + 1)))
    assert code is Code.RESOURCE_EXHAUSTED


async def test_a_compressed_message_over_the_limit_is_refused(door: FrontDoor) -> None:
    request = ask([0] * (limits.BODY_BYTES // 4 + 1))
    code, _ = await refusal_of(door, request, compression=grpc.Compression.Gzip)
    assert code is Code.RESOURCE_EXHAUSTED


def _mixed() -> Any:
    request = ask([1])
    request.inputs[0].contents.int_contents.append(1)
    return request


def _shape(size: int) -> Any:
    request = ask([1])
    request.inputs[0].shape[0] = size
    return request


def _no_data() -> Any:
    request = _shape(2**62)
    del request.raw_input_contents[:]
    request.raw_input_contents.append(b"")
    return request


def _parameter(name: str) -> Any:
    request = ask([1])
    request.parameters[name].int64_param = 1
    return request


def _version(text: str) -> Any:
    request = ask([1])
    request.model_version = text
    return request


REFUSED: dict[str, tuple[Any, Refusal]] = {
    "raw and typed mixed": (_mixed(), Refusal.INVALID_VALUE),
    "shape that wraps": (_shape(2**62), Refusal.INVALID_VALUE),
    "shape that wraps, no data": (_no_data(), Refusal.INVALID_VALUE),
    "negative shape": (_shape(-1), Refusal.INVALID_VALUE),
    "shape beyond the limit": (_shape(2**30), Refusal.REQUEST_TOO_LARGE),
    "reserved parameter": (_parameter("priority"), Refusal.INVALID_VALUE),
    "shared memory": (_parameter("shared_memory_region"), Refusal.NOT_IMPLEMENTED),
    "no such model": (ask([1], model="none"), Refusal.MODEL_NOT_FOUND),
    "no model": (ask([1], model=""), Refusal.INVALID_VALUE),
    "a path for a model": (ask([1], model="../echo"), Refusal.INVALID_VALUE),
    "no such version": (_version("2"), Refusal.MODEL_NOT_FOUND),
    "no version at all": (_version("latest"), Refusal.MODEL_NOT_FOUND),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_refusal_is_a_status_with_marks_for_gateways(
    door: FrontDoor, triton: TritonProcess, case: str
) -> None:
    request, refusal = REFUSED[case]
    code, metadata = await refusal_of(door, request)
    assert code.value[0] == refusal.grpc
    assert metadata[headers.REFUSED] == refusal.code
    assert headers.RETRY not in metadata
    assert triton.alive


async def test_a_refusal_that_may_run_elsewhere_says_so(door: FrontDoor) -> None:
    door.serving.set_unready("echo-int32", 1, "is being repaired")
    code, metadata = await refusal_of(door, ask([1]))
    assert code is Code.UNAVAILABLE
    assert metadata[headers.REFUSED] == Refusal.NOT_READY.code
    assert metadata[headers.RETRY] == headers.RETRY_SAFE


async def test_the_stamped_version_is_served_where_the_message_names_none(door: FrontDoor) -> None:
    answer = await call(door, "ModelInfer", ask([1]), metadata=((headers.VERSION, "1"),))
    assert answer.model_version == "1"
    code, _ = await refusal_of(door, ask([1]), metadata=((headers.VERSION_HINT, "9"),))
    assert code is Code.NOT_FOUND
    code, marks = await refusal_of(door, ask([1]), metadata=((headers.VERSION, "9"),))
    assert (code, marks[headers.RETRY]) == (Code.UNAVAILABLE, headers.RETRY_SAFE)


async def test_garbage_is_refused(door: FrontDoor) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await door.channel.unary_unary(f"{SERVICE}ModelInfer")(b"\xff\xff\xff", timeout=5)
    assert caught.value.code() is Code.INVALID_ARGUMENT


async def test_a_refusal_marks_its_first_headers_and_ends_in_later_ones(door: FrontDoor) -> None:
    """Envoy reads the marks in response headers; of trailers alone it counts the bare status."""
    _, metadata = await refusal_of(door, ask([1], model="none"))
    assert metadata[headers.REFUSED]
    frames = await _frames_of_refused_call(door)
    # The first HEADERS frame (type 1) of the answer has no END_STREAM (flag 1).
    first = next(flags for kind, flags in frames if kind == 1)
    assert not first & 1


async def _frames_of_refused_call(door: FrontDoor) -> list[tuple[int, int]]:
    host, _, port = door.grpc_target.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": f"{SERVICE}ModelInfer",
        ":authority": "x",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    block = b"".join(
        b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in fields.items()
    )
    message = ask([1], model="none").SerializeToString()
    data = b"\x00" + struct.pack(">I", len(message)) + message
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, b""))
    writer.write(_frame(1, 4, 1, block) + _frame(0, 1, 1, data))
    frames: list[tuple[int, int]] = []
    while not any(kind == 1 for kind, _ in frames):
        head = await reader.readexactly(9)
        await reader.readexactly(int.from_bytes(head[:3], "big"))
        frames.append((head[3], head[4]))
    writer.close()
    await writer.wait_closed()
    return frames


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return (
        len(payload).to_bytes(3, "big") + bytes([kind, flags]) + struct.pack(">I", stream) + payload
    )


async def test_a_caller_who_cancels_frees_the_model(door: FrontDoor, triton: TritonProcess) -> None:
    log = triton.folder / "slow.log"
    log.write_text("")
    task = asyncio.create_task(call(door, "ModelInfer", ask([10_000], model="slow")))
    await until(lambda: "began" in log.read_text())
    task.cancel()
    await until(lambda: "cancelled" in log.read_text())
    await until(lambda: door.serving.in_flight == 0)


async def test_a_deadline_ends_the_call_and_frees_the_model(
    door: FrontDoor, triton: TritonProcess
) -> None:
    log = triton.folder / "slow.log"
    log.write_text("")
    unary = door.channel.unary_unary(f"{SERVICE}ModelInfer")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await unary(ask([10_000], model="slow").SerializeToString(), timeout=0.2)
    assert caught.value.code() is Code.DEADLINE_EXCEEDED
    await until(lambda: "cancelled" in log.read_text())
    await until(lambda: door.serving.in_flight == 0)


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
    for wrong in (ask([1], model="none", request_id="a"), _with_id(_mixed()), _with_id(_no_data())):
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


async def test_a_slow_reader_is_cut_off_and_its_work_ends(door: FrontDoor) -> None:
    stream = open_stream(door)
    await stream.write(many(2_000, 160_000))
    served = door.serving.find("many", 1)
    await until(lambda: served.failed_total == 1)
    assert served.in_flight == 0
    answers = []
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        answers = await rest(stream)
    assert len(answers) < 2_000
    assert caught.value.code() is Code.RESOURCE_EXHAUSTED


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


async def test_server_and_model_answer_about_themselves(door: FrontDoor) -> None:
    assert (await call(door, "ServerLive", pb.ServerLiveRequest())).live
    assert (await call(door, "ServerReady", pb.ServerReadyRequest())).ready
    assert (await call(door, "ServerMetadata", pb.ServerMetadataRequest())).name == "headrace"
    assert (await call(door, "ModelReady", pb.ModelReadyRequest(name="pair"))).ready
    metadata = await call(door, "ModelMetadata", pb.ModelMetadataRequest(name="pair", version="1"))
    assert [(one.name, list(one.shape)) for one in metadata.inputs] == [
        ("a", [-1, 2]),
        ("b", [-1, -1]),
    ]
    config = await call(door, "ModelConfig", pb.ModelConfigRequest(name="pair"))
    assert (config.config.name, config.config.max_batch_size) == ("pair", 4)
    statistics = await call(door, "ModelStatistics", pb.ModelStatisticsRequest(name="pair"))
    assert [(one.name, one.version) for one in statistics.model_stats] == [("pair", "1")]
    every = await call(door, "ModelStatistics", pb.ModelStatisticsRequest())
    assert len(every.model_stats) == len(lab_models.ALL)


@pytest.mark.parametrize(
    "method", ["RepositoryIndex", "SystemSharedMemoryStatus", "TraceSetting", "LogSettings"]
)
async def test_what_operators_call_is_not_offered(door: FrontDoor, method: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await door.channel.unary_unary(SERVICE + method)(b"", timeout=5)
    assert caught.value.code() is Code.UNIMPLEMENTED


async def health(door: FrontDoor, service: str) -> int:
    check = door.channel.unary_unary("/grpc.health.v1.Health/Check")
    answer = await check(StringValue(value=service).SerializeToString(), timeout=5)
    return Int32Value.FromString(answer).value


async def test_health_tells_readiness_of_node_and_version(door: FrontDoor) -> None:
    assert (await health(door, ""), await health(door, "pair@1")) == (1, 1)
    door.serving.set_unready("pair", 1, "is being repaired")
    assert (await health(door, ""), await health(door, "pair@1")) == (1, 2)
    door.serving.draining = True
    assert (await health(door, ""), await health(door, "echo-int32@1")) == (2, 2)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await health(door, "pair@7")
    assert caught.value.code() is Code.NOT_FOUND


async def test_a_watcher_of_health_hears_each_change(door: FrontDoor) -> None:
    watch = door.channel.unary_stream("/grpc.health.v1.Health/Watch")(
        StringValue(value="pair@1").SerializeToString()
    )
    heard = [Int32Value.FromString(await watch.read()).value]
    door.serving.set_unready("pair", 1, "is being repaired")
    heard.append(Int32Value.FromString(await watch.read()).value)
    door.serving.drop("pair", 1)
    heard.append(Int32Value.FromString(await watch.read()).value)
    assert heard == [1, 2, 3]
    watch.cancel()


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


async def until_idle(triton: TritonProcess) -> None:
    """Wait until what was cancelled has left the slow model's queue, so that it is free again."""
    async with front_door(triton.target, [lab_models.SLOW]) as door:
        await call(door, "ModelInfer", ask([1], model="slow"))


async def test_a_gateways_patience_is_the_deadline_of_a_call(
    door: FrontDoor, triton: TritonProcess
) -> None:
    patience = (("x-envoy-expected-rq-timeout-ms", "100"),)
    code, metadata = await refusal_of(door, ask([10_000], model="slow"), metadata=patience)
    assert code is Code.DEADLINE_EXCEEDED
    assert metadata[headers.REFUSED] == Refusal.TIMEOUT.code
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
