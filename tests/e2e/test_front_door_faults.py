"""Requests that would kill or bind a bare Triton: refused, or ended, with Triton alive behind."""

import asyncio
import io
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from headrace import headers, limits
from headrace.refusals import Refusal
from tests.fakes import lab_models
from tests.fakes.front_door import FrontDoor, Reply, front_door
from tests.fakes.triton_process import TritonProcess, running_triton

pytestmark = pytest.mark.e2e

HEADER = "inference-header-content-length"


def one(shape: list[int], datatype: str = "INT32", data: Any = (1,)) -> bytes:
    given = {"name": "data", "shape": shape, "datatype": datatype, "data": data}
    return json.dumps({"inputs": [given]}).encode()


async def infer(door: FrontDoor, model: str, data: Any, **options: Any) -> Reply:
    return await door.send("POST", f"/v2/models/{model}/infer", data=data, **options)


async def until(condition: Callable[[], bool], within_s: float = 5.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def check_refused(reply: Reply, refusal: Refusal) -> None:
    assert (reply.status, json.loads(reply.body)["code"]) == (refusal.http, refusal.code), reply
    assert reply.headers[headers.REFUSED] == refusal.code
    assert (reply.headers.get(headers.RETRY) == headers.RETRY_SAFE) == refusal.elsewhere


KILLERS = {
    "FP32 shape that wraps to nothing": ("fp32", one([2**62], "FP32")),
    "INT64 shape that wraps to nothing": ("int64", one([2**61], "INT64")),
    "shape beyond memory": ("fp32", one([53687091200], "FP32")),
    "shape beyond 64 bits": ("fp32", one([2**70], "FP32")),
    "product that wraps": ("fp32", one([2**32, 2**32], "FP32")),
    "negative shape": ("int32", one([-1])),
    "200,000 brackets": ("int32", b"[" * 200_000),
    "deep data": ("int32", one([1]).replace(b"[1]}", b"[" * 100 + b"1" + b"]" * 100 + b"}")),
    "deep parameter": ("int32", b'{"parameters":{"x":' + b"[" * 300_000),
    "no JSON at all": ("int32", b"\x00\xff\xfe"),
    "empty body": ("int32", b""),
    "null": ("int32", b"null"),
    "not UTF-8": ("bytes", one([1], "BYTES", ["x"]).replace(b"x", b"\xff")),
}


@pytest.mark.parametrize("case", KILLERS)
async def test_a_body_that_kills_triton_is_refused_and_triton_lives(
    door: FrontDoor, triton: TritonProcess, case: str
) -> None:
    datatype, data = KILLERS[case]
    reply = await infer(door, f"echo-{datatype}", data)
    assert reply.status in (400, 413), reply
    assert reply.headers[headers.REFUSED]
    assert (await infer(door, "echo-int32", one([1]))).status == 200
    assert triton.alive


async def test_a_repository_call_does_not_reach_triton(
    door: FrontDoor, triton: TritonProcess
) -> None:
    reply = await door.send("POST", "/v2/repository/index", data=b"[" * 200_000)
    check_refused(reply, Refusal.NOT_FOUND)
    assert triton.alive


async def test_a_body_over_the_limit_is_refused_before_it_is_read(door: FrontDoor) -> None:
    check_refused(
        await infer(door, "echo-uint8", io.BytesIO(bytes(limits.BODY_BYTES + 1))),
        Refusal.REQUEST_TOO_LARGE,
    )


async def test_a_body_of_unknown_length_is_refused_once_it_is_too_long(door: FrontDoor) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(2**20)

    check_refused(await infer(door, "echo-uint8", endless()), Refusal.REQUEST_TOO_LARGE)


async def test_a_body_of_ten_megabytes_passes(door: FrontDoor) -> None:
    data = bytes(10 * 2**20)
    reply = await infer(door, "echo-uint8", io.BytesIO(data), headers={HEADER: "0"})
    assert reply.status == 200
    assert reply.body[int(reply.headers[HEADER]) :] == data


async def test_a_compressed_body_is_refused(door: FrontDoor) -> None:
    reply = await infer(door, "echo-int32", b"\x1f\x8b", headers={"content-encoding": "gzip"})
    check_refused(reply, Refusal.ENCODING_NOT_ACCEPTED)


async def test_more_bodies_than_the_node_holds_are_refused(door: FrontDoor) -> None:
    door.serving.bodies.held_bytes = limits.BODIES_BYTES
    reply = await infer(door, "echo-int32", one([1]))
    check_refused(reply, Refusal.OVERLOADED)
    assert reply.headers["retry-after"] == "1"
    door.serving.bodies.held_bytes = 0


async def test_one_connection_serves_many_requests_also_refused_ones(door: FrontDoor) -> None:
    for _ in range(3):
        assert (await infer(door, "echo-int32", one([1]))).status == 200
        check_refused(await infer(door, "echo-int32", one([2])), Refusal.INVALID_VALUE)
        check_refused(await door.send("GET", "/v2/models/none"), Refusal.MODEL_NOT_FOUND)


async def test_pipelined_requests_are_answered_in_order(door: FrontDoor) -> None:
    host, _, port = door.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for number in range(3):
        body = one([1], data=[number])
        head = (
            f"POST /v2/models/echo-int32/infer HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}"
        )
        writer.write(head.encode() + b"\r\n\r\n" + body)
    for number in range(3):
        head_bytes = await reader.readuntil(b"\r\n\r\n")
        size = int(head_bytes.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        answer = json.loads(await reader.readexactly(size))
        assert answer["outputs"][0]["data"] == [number]
    writer.close()
    await writer.wait_closed()


async def test_a_caller_who_leaves_frees_the_model(door: FrontDoor, triton: TritonProcess) -> None:
    log = triton.folder / "slow.log"
    log.write_text("")
    task = asyncio.create_task(infer(door, "slow", one([1], data=[10_000])))
    await until(lambda: log.read_text() == "began\n")
    task.cancel()
    await until(lambda: "cancelled" in log.read_text())
    served = door.serving.find("slow", 1)
    await until(lambda: served.in_flight == 0)
    assert (served.abandoned_total, served.failed_total) == (1, 0)


async def test_a_request_past_its_gateways_patience_ends_and_frees_the_model(
    door: FrontDoor, triton: TritonProcess
) -> None:
    log = triton.folder / "slow.log"
    log.write_text("")
    patience = {"x-envoy-expected-rq-timeout-ms": "100"}
    reply = await infer(door, "slow", one([1], data=[10_000]), headers=patience)
    check_refused(reply, Refusal.TIMEOUT)
    await until(lambda: "cancelled" in log.read_text())
    assert door.serving.find("slow", 1).failed_total == 1


async def test_a_dead_stub_is_an_illness_of_the_node_and_is_reported(
    triton: TritonProcess,
) -> None:
    async with front_door(triton.target, lab_models.ALL) as door:
        deaths: list[str] = []
        door.triton.on_stub_death = deaths.append
        reply = await infer(door, "crash", one([1], data=[1]))
        assert reply.status == 503, reply
        assert json.loads(reply.body)["code"] == Refusal.NOT_READY.code
        assert headers.REFUSED not in reply.headers
        # It may have run, and the model does not say that running twice is harmless.
        assert headers.RETRY not in reply.headers
        assert deaths == ["crash.1"]
        await door.triton.unload("crash.1")
        await door.triton.load("crash.1")
        assert (await infer(door, "crash", one([1], data=[2]))).status == 200


async def test_a_full_version_refuses_and_the_worth_less_first(
    door: FrontDoor, triton: TritonProcess
) -> None:
    served = door.serving.find("echo-int32", 1)
    served.in_flight = served.capacity // 2
    door.serving.in_flight += served.in_flight
    shadow = {headers.SHADOW: "1"}
    check_refused(await infer(door, "echo-int32", one([1]), headers=shadow), Refusal.OVERLOADED)
    assert (await infer(door, "echo-int32", one([1]))).status == 200
    served.in_flight = served.capacity
    critical = {headers.TIER: "critical"}
    check_refused(await infer(door, "echo-int32", one([1]), headers=critical), Refusal.OVERLOADED)
    assert served.refused_total == 2


async def test_a_draining_node_finishes_what_is_inside_and_refuses_the_rest(
    door: FrontDoor,
) -> None:
    inside = asyncio.create_task(infer(door, "slow", one([1], data=[200])))
    await until(lambda: door.serving.in_flight == 1)
    door.serving.draining = True
    check_refused(await infer(door, "slow", one([1])), Refusal.DRAINING)
    check_refused(await door.send("GET", "/v2/health/ready"), Refusal.DRAINING)
    check_refused(await door.send("GET", "/v2/models/slow/versions/1/ready"), Refusal.DRAINING)
    assert (await inside).status == 200


async def test_a_dead_triton_is_an_illness_and_a_new_one_is_taken_up(
    triton: TritonProcess,
) -> None:
    with running_triton() as mortal:
        lab_models.install_only(mortal, lab_models.SLOW)
        async with front_door(mortal.target, [lab_models.SLOW]) as door:
            inside = asyncio.create_task(infer(door, "slow", one([1], data=[10_000])))
            await until(lambda: "began" in (mortal.folder / "slow.log").read_text())
            mortal.kill()
            lost = await inside
            assert (lost.status, headers.REFUSED in lost.headers) == (502, False), lost
            assert headers.RETRY not in lost.headers
            refused = await infer(door, "slow", one([1]))
            assert (refused.status, refused.headers[headers.RETRY]) == (503, headers.RETRY_SAFE)
            assert (await door.send("GET", "/v2/health/ready")).status == 503
            await door.triton.reconnect(triton.target)
            assert (await infer(door, "slow", one([1]))).status == 200


async def test_a_caller_that_asks_first_is_told_to_go_on_or_refused_at_once(
    door: FrontDoor,
) -> None:
    reply = await infer(door, "echo-int32", one([1]), expect100=True)
    assert reply.status == 200
    host, _, port = door.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"POST /v2/models/echo-int32/infer HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n"
        + f"content-length: {limits.BODY_BYTES + 1}\r\n\r\n".encode()
    )
    assert (await reader.readline()).startswith(b"HTTP/1.1 413")
    writer.close()
    await writer.wait_closed()
