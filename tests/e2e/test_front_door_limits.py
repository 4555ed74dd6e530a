"""What one caller can take of a front door: time, headers, and the turns of the others."""

import asyncio
import io
import json
import time
from typing import Any

import pytest

from headrace import headers, limits
from headrace.refusals import Refusal
from tests.fakes.front_door import FrontDoor

pytestmark = pytest.mark.e2e

INFER = "/v2/models/echo-int32/infer"
START = f"POST {INFER} HTTP/1.1\r\nhost: x\r\n"


def one(**more: Any) -> bytes:
    given = {"name": "data", "shape": [1], "datatype": "INT32", "data": [1]}
    return json.dumps({"inputs": [given], **more}).encode()


async def connect(door: FrontDoor) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = door.url.removeprefix("http://").partition(":")
    return await asyncio.open_connection(host, int(port))


async def test_h09_a_slow_body_is_cut_off_after_upload_s_and_held_no_slot(
    door: FrontDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "UPLOAD_S", 0.3)
    reader, writer = await connect(door)
    writer.write(f"{START}content-length: {limits.BODY_BYTES}\r\n\r\nbegin".encode())
    deadline = time.monotonic() + 5
    while door.serving.bodies.held_bytes != len(b"begin"):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    assert door.serving.in_flight == 0
    answer = await reader.readuntil(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert f"{headers.REFUSED}: {Refusal.SLOW_SENDER.code}".encode() in answer
    assert door.serving.bodies.held_bytes == 0
    writer.close()
    await writer.wait_closed()


async def test_bodies_that_are_only_announced_keep_nobody_out(door: FrontDoor) -> None:
    open_ = [await connect(door) for _ in range(limits.BODIES_BYTES // limits.BODY_BYTES + 2)]
    for _, writer in open_:
        writer.write(f"{START}content-length: {limits.BODY_BYTES}\r\n\r\n".encode())
    assert (await door.send("POST", INFER, data=one())).status == 200
    for _, writer in open_:
        writer.close()
        await writer.wait_closed()


async def test_headers_up_to_headers_bytes_are_taken(door: FrontDoor) -> None:
    long = {"x-long": "a" * (limits.HEADERS_BYTES - 1_000)}
    assert (await door.send("POST", INFER, data=one(), headers=long)).status == 200
    query = "?" + "q" * 30_000
    assert (await door.send("POST", INFER + query, data=one())).status == 200
    too_long = {"x-long": "a" * (limits.HEADERS_BYTES + 1)}
    assert (await door.send("POST", INFER, data=one(), headers=too_long)).status == 400


async def test_an_id_has_at_most_request_id_length_characters(door: FrontDoor) -> None:
    longest = await door.send("POST", INFER, data=one(id="i" * limits.REQUEST_ID_LENGTH))
    assert json.loads(longest.body)["id"] == "i" * limits.REQUEST_ID_LENGTH
    longer = await door.send("POST", INFER, data=one(id="i" * (limits.REQUEST_ID_LENGTH + 1)))
    assert (longer.status, json.loads(longer.body)["where"]) == (400, "$.id")


async def test_a_wrong_method_is_told_the_right_one(door: FrontDoor) -> None:
    for method, path, allowed in (("GET", INFER, "POST"), ("POST", "/v2", "GET, HEAD")):
        reply = await door.send(method, path)
        assert json.loads(reply.body)["code"] == Refusal.METHOD_NOT_ALLOWED.code
        assert (reply.status, reply.headers["allow"]) == (405, allowed)


async def test_h06_chunks_that_break_in_the_middle_are_the_callers_fault(
    door: FrontDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "UPLOAD_S", 0.3)
    first = f"{START}transfer-encoding: chunked\r\n\r\n5\r\nabcde\r\n".encode()
    for second in (b"FFFFFFFFFFFFFFFFFF\r\n", b"-1\r\n", b"zz\r\n"):
        reader, writer = await connect(door)
        writer.write(first)
        await writer.drain()
        writer.write(second)
        async with asyncio.timeout(10):
            answer = await reader.readuntil(b"\r\n")
        assert answer.split()[1] in (b"400", b"408"), answer
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    "body",
    [
        one().replace(b"[1]}", b"[NaN]}"),
        one()[:-1] + b',"inputs":[]}',
        b"\xef\xbb\xbf" + one(),
        one(id="x").replace(b'"x"', b'"\xff"'),
        one(id="x").replace(b'"x"', b'"\\ud800"'),
        b"[" * 100_000,
    ],
    ids=["not-a-number", "key-twice", "byte-order-mark", "not-utf-8", "half-a-pair", "deep"],
)
async def test_h13_json_that_is_none_is_refused(door: FrontDoor, body: bytes) -> None:
    reply = await door.send("POST", INFER, data=body)
    assert (reply.status, json.loads(reply.body)["code"]) == (400, Refusal.INVALID_JSON.code)


async def test_small_requests_pass_a_large_body_that_is_hard_to_read(door: FrontDoor) -> None:
    hard = one(unknown=[[]] * 1_000_000)
    assert len(hard) < limits.BODY_BYTES
    # The first one starts a process.
    assert (await door.send("POST", INFER, data=one(unknown=["x" * 100_000]))).status == 200
    large = asyncio.create_task(door.send("POST", INFER, data=io.BytesIO(hard)))
    passed = 0
    while not large.done():
        assert (await door.send("POST", INFER, data=one())).status == 200
        passed += 1
    assert (await large).status == 200
    assert passed >= 3
