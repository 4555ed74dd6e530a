"""Callers who mean harm, through real Envoys, sidecars and Tritons: refused, and nobody suffers."""

import asyncio
import json
import re
import struct
import urllib.request
from collections import Counter
from typing import Any

import grpc
import grpc.aio
import pytest
from tritonclient.grpc import service_pb2 as pb

from headrace_xds.local.mesh import LocalMesh
from tests.fakes.echo_mesh import KEY, infer, stats
from tests.fakes.load import Call, eventually, send_all

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

SERVICE = "/inference.GRPCInferenceService/"
TOGETHER = 12
"""More than the failures in a row after which a node is ejected, on each node."""


def url(mesh: LocalMesh) -> str:
    return mesh.gateway("gw-eu").url


def ejections(mesh: LocalMesh) -> int:
    found = stats(mesh, "gw-eu", "cluster.*outlier_detection.ejections")
    return sum(
        count
        for name, count in found.items()
        if name.endswith(("ejections_enforced_total", "ejections_overflow"))
    )


async def statuses(mesh: LocalMesh, call: Call, times: int = TOGETHER) -> set[int]:
    return set((await send_all(url(mesh), [call] * times)).statuses)


BODY = infer("echo").body
WRONG = {
    "no JSON": b"[",
    "deep JSON": b"[" * 100_000,
    "large hostile JSON": b'{"x":[' + b"[]," * 300_000 + b'1],"inputs":[]}',
    "another datatype": BODY.replace(b"BYTES", b"INT32"),
    "a shape that wraps": BODY.replace(b"[1, 1]", b"[4611686018427387904, 1]"),
    "no inputs": b'{"inputs":[]}',
    "a key twice": BODY[:-1] + b',"inputs":[]}',
    "not UTF-8": BODY.replace(b"hello", b"\xff"),
}


async def test_no_bad_input_has_a_node_ejected(echo: LocalMesh) -> None:
    before = ejections(echo)
    path = "/v2/models/echo/infer"
    for case, body in WRONG.items():
        assert await statuses(echo, Call(path, body, KEY)) == {400}, case
    binary = {**KEY, "inference-header-content-length": "999999"}
    assert await statuses(echo, Call(path, BODY, binary)) == {400}
    packed = {**KEY, "content-encoding": "gzip"}
    assert await statuses(echo, Call(path, b"\x1f\x8b", packed)) == {415}
    assert await statuses(echo, Call(path + "/", BODY, KEY)) == {404}
    assert ejections(echo) == before
    assert (await send_all(url(echo), [infer("echo")] * 4)).statuses == {200: 4}


async def test_a_full_model_has_no_node_ejected_and_refuses_soon(echo: LocalMesh) -> None:
    before = ejections(echo)
    traffic = await send_all(url(echo), [infer("narrow")] * 60, concurrency=30)
    assert set(traffic.statuses) == {200, 503}
    for refused in traffic.failed:
        assert json.loads(refused.body)["code"] == "overloaded"
        assert "retry-after" in {name.lower() for name in refused.headers}
    assert ejections(echo) == before


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v2/models/ech/infer", 404),
        ("/v2/models/echo2/infer", 404),
        ("/v2/models/ECHO/infer", 404),
        ("/v2/models/echo/versions/3/infer", 404),
        ("/v2/models/echo/versions/0/infer", 404),
        ("/v2/models/echo/versions/01/infer", 404),
        ("/v2/models/echo/versions/99999999999/infer", 404),
        ("/v2/models/echo/versions/x/infer", 404),
        ("/v2/models/echo/versions//infer", 404),
        ("/v2/models/%65cho/infer", 200),
        ("/v2/models/a%0ab/infer", 404),
        ("/v2/models/" + "a" * 10_240 + "/infer", 404),
        ("//v2//models//echo//infer", 200),
        ("/v2/models/echo/infer?x=/v2/models/weighted/infer", 200),
        ("/v2/models/echo/infer?" + "q" * 20_000, 200),
    ],
    ids=lambda value: str(value)[:48],
)
async def test_a04_a_path_names_the_model_it_seems_to_or_none(
    echo: LocalMesh, path: str, status: int
) -> None:
    # As it is written: a client would tidy the path up.
    address = echo.gateway("gw-eu")
    reader, writer = await asyncio.open_connection(address.address, address.port)
    fields = {"host": "a", "content-length": str(len(BODY)), **KEY}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    writer.write(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + BODY)
    async with asyncio.timeout(20):
        line = await reader.readline()
    writer.close()
    await writer.wait_closed()
    assert int(line.split()[1]) == status, line


def test_a04_labels_are_never_what_callers_wrote(echo: LocalMesh) -> None:
    configured = (echo.config_dir / "models.yaml").read_text()
    for node in echo.plan.nodes:
        page = f"http://{node.place.address}:{echo.plan.ports.node_metrics}/metrics"
        with urllib.request.urlopen(page, timeout=5) as reply:
            text = reply.read().decode()
        models = {line.split('model="')[1].split('"')[0] for line in text.splitlines()
                  if line.startswith("headrace_") and 'model="' in line}  # fmt: skip
        assert models <= set(re.findall(r"name: (\w+)}$", configured, re.MULTILINE))


def ask(size: int = 5, model: str = "echo", request_id: str = "") -> Any:
    request = pb.ModelInferRequest(model_name=model, id=request_id)
    request.inputs.add(name="data", datatype="BYTES", shape=[1, 1])
    request.raw_input_contents.append(struct.pack("<I", size) + b"x" * size)
    return request


def channel(mesh: LocalMesh) -> Any:
    options = (("grpc.max_receive_message_length", -1), ("grpc.enable_retries", 0))
    return grpc.aio.insecure_channel(url(mesh).removeprefix("http://"), options=options)


METADATA = (("x-api-key", "demo"),)


async def code_of(call: Any) -> str:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return str(error.code().name)
    return "OK"


async def test_no_call_has_a_node_ejected(echo: LocalMesh) -> None:
    before = ejections(echo)
    async with channel(echo) as road:
        unary = road.unary_unary(SERVICE + "ModelInfer")

        async def codes(data: bytes, **options: Any) -> set[str]:
            calls = [unary(data, metadata=METADATA, **options) for _ in range(TOGETHER)]
            return set(await asyncio.gather(*map(code_of, calls)))

        hurried = [await codes(ask().SerializeToString(), timeout=t) for t in (0.001, 0.002, 0.01)]
        assert set.union(*hurried) <= {"OK", "DEADLINE_EXCEEDED"}
        long = (*METADATA, ("x-long", "a" * 20_000))
        assert await code_of(unary(ask().SerializeToString(), metadata=long)) == "OK"
        wrong = ask()
        wrong.inputs[0].datatype = "INT32"
        assert await codes(wrong.SerializeToString()) == {"INVALID_ARGUMENT"}
        large = ask()
        large.inputs[0].shape.extend([1] * 200_000)
        assert await codes(large.SerializeToString()) == {"INVALID_ARGUMENT"}
        assert await codes(ask(model="none").SerializeToString()) == {"NOT_FOUND"}
    assert ejections(echo) == before


async def test_streams_end_as_they_should_through_the_whole_road(echo: LocalMesh) -> None:
    before = ejections(echo)
    async with channel(echo) as road:
        multi = road.stream_stream(
            SERVICE + "ModelStreamInfer",
            lambda message: message.SerializeToString(),
            pb.ModelStreamInferResponse.FromString,
        )

        def stream(**options: Any) -> Any:
            return multi(metadata=(*METADATA, ("headrace-model", "echo")), **options)

        many = stream()
        for number in range(8):
            await many.write(ask(2 * 2**20, request_id=str(number)))
        await many.done_writing()
        answers = [answer async for answer in many]
        sizes = Counter(len(a.infer_response.raw_output_contents[0]) for a in answers)
        assert sizes == {2 * 2**20 + 4: 8}
        assert {a.infer_response.id for a in answers} == {str(number) for number in range(8)}

        other = stream()
        for model in ("none", "weighted", "echo"):
            await other.write(ask(model=model))
        await other.done_writing()
        told = [answer.error_message async for answer in other]
        assert sorted(bool(text) for text in told) == [False, True, True]
        assert all("routed for 'echo'" in text for text in told if text)

        late = stream(timeout=0.3)
        assert [a async for a in _until_error(late)] == ["DEADLINE_EXCEEDED"]
        for _ in range(TOGETHER):
            left = stream()
            await left.write(ask())
            left.cancel()
    assert ejections(echo) == before
    assert (await send_all(url(echo), [infer("echo")] * 4)).statuses == {200: 4}


async def _until_error(stream: Any) -> Any:
    try:
        async for answer in stream:
            yield answer
    except grpc.aio.AioRpcError as error:
        yield error.code().name


async def test_s01_a_caller_who_leaves_frees_its_place(echo: LocalMesh) -> None:
    async with channel(echo) as road:
        unary = road.unary_unary(SERVICE + "ModelInfer")
        data = ask(model="narrow").SerializeToString()
        calls = [unary(data, metadata=METADATA) for _ in range(4)]
        await asyncio.sleep(0)
        for call in calls:
            call.cancel()

        async def served() -> bool:
            return await code_of(unary(data, metadata=METADATA)) == "OK"

        await eventually(served, within_s=5, what="room for others")


@pytest.mark.parametrize("kind", ["rapid reset", "pings", "empty frames", "endless headers"])
async def test_h16_floods_end_their_own_connection_only(echo: LocalMesh, kind: str) -> None:
    address = echo.gateway("gw-eu")
    reader, writer = await asyncio.open_connection(address.address, address.port)
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, b"") + _flood(kind))
    async with asyncio.timeout(20):
        closed = False
        while not closed:
            try:
                closed = not await reader.read(65_536)
            except ConnectionError:
                closed = True
    writer.close()
    assert (await send_all(url(echo), [infer("echo")] * 8)).statuses == {200: 8}


def _flood(kind: str) -> bytes:
    opened = {
        ":method": "POST",
        ":scheme": "http",
        ":path": SERVICE + "ModelInfer",
        ":authority": "a",
        "content-type": "application/grpc",
        "x-api-key": "demo",
    }
    block = b"".join(b"\0" + _text(name) + _text(value) for name, value in opened.items())
    match kind:
        case "rapid reset":
            cancel = struct.pack(">I", 8)
            ids = range(1, 4_001, 2)
            return b"".join(_frame(1, 4, i, block) + _frame(3, 0, i, cancel) for i in ids)
        case "pings":
            return _frame(6, 0, 0, bytes(8)) * 20_000
        case "empty frames":
            return _frame(1, 4, 1, block) + _frame(0, 0, 1, b"") * 20_000
        case _:
            return _frame(1, 0, 1, block) + _frame(9, 0, 1, b"") * 20_000


def _text(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    size = len(payload).to_bytes(3, "big")
    return size + bytes([kind, flags]) + struct.pack(">I", stream) + payload
