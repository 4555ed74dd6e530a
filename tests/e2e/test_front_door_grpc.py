"""The gRPC front door before a real Triton: calls, refusals and their marks."""

import asyncio
import struct
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.wrappers_pb2 import Int32Value, StringValue
from tritonclient.grpc import service_pb2 as pb

from headrace import headers, limits
from headrace.refusals import Refusal
from tests.fakes import grpc_calls, lab_models
from tests.fakes.front_door import FrontDoor
from tests.fakes.grpc_calls import (
    SERVICE,
    ask,
    call,
    frames_of_refused_call,
    refusal_of,
    until,
    until_idle,
)
from tests.fakes.triton_process import TritonProcess

pytestmark = pytest.mark.e2e

Code = grpc.StatusCode


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


async def test_a_compressed_message_is_refused_and_not_inflated(door: FrontDoor) -> None:
    request = ask([0] * (limits.BODY_BYTES // 4 + 1))
    code, marks = await refusal_of(door, request, compression=grpc.Compression.Gzip)
    assert (code, marks[headers.REFUSED]) == (Code.INVALID_ARGUMENT, Refusal.INVALID_VALUE.code)


REFUSED: dict[str, tuple[Any, Refusal]] = {
    "raw and typed mixed": (grpc_calls.mixed(), Refusal.INVALID_VALUE),
    "shape that wraps": (grpc_calls.shape(2**62), Refusal.INVALID_VALUE),
    "shape that wraps, no data": (grpc_calls.no_data(), Refusal.INVALID_VALUE),
    "negative shape": (grpc_calls.shape(-1), Refusal.INVALID_VALUE),
    "shape beyond the limit": (grpc_calls.shape(2**30), Refusal.REQUEST_TOO_LARGE),
    "reserved parameter": (grpc_calls.parameter("priority"), Refusal.INVALID_VALUE),
    "shared memory": (grpc_calls.parameter("shared_memory_region"), Refusal.NOT_IMPLEMENTED),
    "no such model": (ask([1], model="none"), Refusal.MODEL_NOT_FOUND),
    "no model": (ask([1], model=""), Refusal.INVALID_VALUE),
    "a path for a model": (ask([1], model="../echo"), Refusal.INVALID_VALUE),
    "no such version": (grpc_calls.version("2"), Refusal.MODEL_NOT_FOUND),
    "no version at all": (grpc_calls.version("latest"), Refusal.MODEL_NOT_FOUND),
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
    frames = await frames_of_refused_call(door)
    # The first HEADERS frame (type 1) of the answer has no END_STREAM (flag 1).
    first = next(flags for kind, flags in frames if kind == 1)
    assert not first & 1


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


async def test_a_gateways_patience_is_the_deadline_of_a_call(
    door: FrontDoor, triton: TritonProcess
) -> None:
    patience = (("x-envoy-expected-rq-timeout-ms", "100"),)
    code, metadata = await refusal_of(door, ask([10_000], model="slow"), metadata=patience)
    assert code is Code.DEADLINE_EXCEEDED
    assert metadata[headers.REFUSED] == Refusal.TIMEOUT.code
    await until_idle(triton)
