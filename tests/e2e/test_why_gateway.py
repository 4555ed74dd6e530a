"""What ``why`` says of a request, and what a real Envoy does with it."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from headrace import headers, names, routing
from headrace.refusals import Refusal
from headrace.why.ask import why
from headrace.why.explanation import Explanation
from headrace.why.request import Request
from tests.fakes.ads_recorder import until
from tests.fakes.mesh_gateway import SERVICE, MeshGateway, mesh_gateway
from tests.fakes.mesh_node import HOST, MeshNode, Seen, mesh_node
from tests.fakes.why_cases import CASES, NAME, PIN_2, TEXT, key
from tests.fakes.why_mesh import why_mesh

pytestmark = pytest.mark.e2e
GRPC_CODES = {refusal.code: refusal.grpc for refusal in Refusal}


@dataclass(frozen=True)
class Happened:
    """What became of a request at a gateway."""

    status: int
    code: str
    """Code of the refusal in the body; empty where there is none."""
    grpc_status: int | None
    seen: tuple[Seen, ...]


async def send(gateway: MeshGateway, node: MeshNode, request: Request) -> Happened:
    """Send a request byte by byte as it is, over HTTP/1.1 whatever its protocol."""
    node.seen.clear()
    lines = [f"{request.method} {request.path} HTTP/1.1", f"host: {request.host}"]
    lines += [f"{name}: {value}" for name, value in request.headers]
    lines += [f"content-length: {request.size}", "connection: close", "", ""]
    reader, writer = await asyncio.open_connection(HOST, gateway.port)
    try:
        async with asyncio.timeout(10):
            writer.write("\r\n".join(lines).encode() + request.body)
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.strip().split("\r\n")
            found = dict(line.split(": ", 1) for line in lines)
            # Not until the end: a gateway that refuses a body closes only a second later.
            length = found.get("content-length")
            body = await (reader.readexactly(int(length)) if length else reader.read())
    finally:
        writer.close()
    return _read(first, found, body, node)


def _read(first: str, found: Mapping[str, str], body: bytes, node: MeshNode) -> Happened:
    text = body[body.find(b"{") : body.rfind(b"}") + 1]
    try:
        code = json.loads(text).get("code", "") if text else ""
    except ValueError:
        code = ""
    grpc_status = int(found["grpc-status"]) if "grpc-status" in found else None
    seen = tuple(each for each in node.seen if headers.SHADOW not in each.headers)
    return Happened(int(first.split()[1]), code, grpc_status, seen)


def check(request: Request, said: Explanation, did: Happened) -> None:
    """Fail where the explanation differs from what happened."""
    if said.refusal:
        assert did.seen == ()
        if said.kind == "http":
            assert did.status == said.status
            assert did.code == said.refusal or is_bare(request)
        else:
            assert did.grpc_status == said.grpc_status == GRPC_CODES[said.refusal]
        return
    assert (did.status, did.code) == (200, "")
    # The fake node answers health checks and says no more of them.
    assert len(did.seen) == (0 if is_health(request) else 1)
    for seen in did.seen:
        timeout_ms = seen.headers.get("x-envoy-expected-rq-timeout-ms")
        assert timeout_ms == f"{(said.timeout_s or 0) * 1000:.0f}"
        if said.decided_by == "node":
            assert seen.version == ""
        elif said.decided_by == "random":
            assert seen.version in {str(side.version) for side in said.sides}
        else:
            assert seen.version == str(said.version)
        assert seen.headers.get(headers.MODEL, "") == said.model
        assert seen.headers.get(headers.TENANT, "") == said.tenant


def is_bare(request: Request) -> bool:
    """Whether Envoy refuses a request before it knows how the mesh refuses."""
    malformed = any("_" in name for name, _ in request.headers) or "#" in request.path
    return malformed or request.plain_path == routing.STREAM_PATH


def is_health(request: Request) -> bool:
    return request.path.endswith("/ready") or request.path.startswith("/grpc.health")


async def test_a_gateway_does_with_every_request_what_why_says(tmp_path: Path) -> None:
    _, mesh = why_mesh()
    wrong = {}
    async with mesh_node("n0") as node, mesh_gateway(tmp_path, mesh, [node]) as gateway:
        for served in mesh.versions:
            for protocol in ("http", "grpc"):
                await gateway.healthy(f"m-{served.model}-{served.version}-{protocol}", 1)
        for name, request in CASES.items():
            said = why(request, mesh)
            did = await send(gateway, node, request)
            try:
                check(request, said, did)
            except AssertionError as error:
                wrong[name] = (str(error), said.refusal, said.version, did)
    assert len(CASES) >= 60
    assert wrong == {}


async def test_the_side_of_a_sticky_request_is_the_one_that_envoy_takes(tmp_path: Path) -> None:
    _, mesh = why_mesh()
    values = ["", "a", "x" * 31, "x" * 32, "x" * 33, "y" * 200, "käse", "a b,c"]
    values += [f"user-{index}" * (index % 7 + 1) for index in range(300)]
    requests = [Request.of(TEXT, given=[key(), ("x-user", value)], body=b"{}") for value in values]
    # The values of a header that is given twice count in their own order.
    requests += [
        Request.of(TEXT, given=[key(), ("x-user", one), ("x-user", other)], body=b"{}")
        for one, other in zip(values[5:60], values[60:115], strict=True)
    ]
    async with mesh_node("n0") as node, mesh_gateway(tmp_path, mesh, [node]) as gateway:
        await gateway.healthy("m-text-1-http", 1)
        said = [why(request, mesh) for request in requests]
        did = [await send(gateway, node, request) for request in requests]
    assert {each.decided_by for each in said} == {"sticky"}
    taken = [each.seen[0].version for each in did]
    assert taken == [str(each.version) for each in said]
    assert {taken.count(version) >= 40 for version in ("1", "2", "3")} == {True}


async def test_calls_and_streams_over_http_2_go_where_why_says(tmp_path: Path) -> None:
    _, mesh = why_mesh()
    calls: list[tuple[str, bytes, list[tuple[str, str]]]] = [
        ("ModelInfer", NAME, [("x-user", "u1")]),
        ("ModelInfer", NAME + PIN_2, []),
        ("ModelInfer", NAME, [("x-plan", "gold"), ("x-area", "a, b")]),
        ("ModelInfer", b"\x0a\x04none", []),
        ("ModelStreamInfer", b"", [("headrace-model", "vision"), ("x-user", "u2")]),
        ("ModelStreamInfer", b"", [("headrace-model", "vision"), ("headrace-version", "3")]),
        ("ModelStreamInfer", b"", [("headrace-model", "text"), ("x-user", "u3")]),
        ("ModelStreamInfer", b"", [("headrace-model", "audio")]),
    ]
    async with mesh_node("n0") as node, mesh_gateway(tmp_path, mesh, [node]) as gateway:
        for served in mesh.versions:
            await gateway.healthy(f"m-{served.model}-{served.version}-grpc", 1)
        for method, message, metadata in calls:
            node.seen.clear()
            given = [key(), *metadata]
            said = why(Request.call(method, message, given=given), mesh)
            assert await outcome(gateway, method, message, given) == said.grpc_status
            versions = [seen.version for seen in node.seen if headers.SHADOW not in seen.headers]
            assert versions == ([] if said.refusal else [str(said.version)])


async def outcome(
    gateway: MeshGateway, method: str, message: bytes, given: list[tuple[str, str]]
) -> int:
    """Status of a call by a real client."""
    channel: Any = gateway.channel
    call = channel.stream_stream(SERVICE + method)(iter([message]), metadata=given, timeout=10)
    try:
        async for _ in call:
            pass
    except grpc.aio.AioRpcError as error:
        return int(error.code().value[0])
    return 0


async def test_the_copy_goes_where_why_says_and_a_stream_has_none(tmp_path: Path) -> None:
    _, mesh = why_mesh()
    request = CASES["mirrored"]
    said = why(request, mesh)
    assert said.mirror is not None
    async with mesh_node("n0") as node, mesh_gateway(tmp_path, mesh, [node]) as gateway:
        await gateway.healthy("m-text-2-http", 1)
        await send(gateway, node, request)
        await until(lambda: copies(node) == ["2"], what="the copy")
    assert said.mirror.cluster == names.shadow_cluster("text", 2, "http")
    stream = Request.call("ModelStreamInfer", b"", given=[key(), ("headrace-model", "text")])
    assert why(stream, mesh).mirror is None


def copies(node: MeshNode) -> list[str]:
    return [seen.version for seen in node.seen if headers.SHADOW in seen.headers]
