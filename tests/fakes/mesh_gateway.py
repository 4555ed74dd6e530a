"""A real Envoy that gets translated resources from a real ADS server."""

import asyncio
import io
import json
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import grpc.aio

from headrace import ir, names
from headrace_xds import server
from headrace_xds.binaries import envoy
from headrace_xds.hub import Hub
from headrace_xds.translate import resources, translate
from headrace_xds.translate.bootstrap import bootstrap
from headrace_xds.translate.clusters import PROTOCOLS
from headrace_xds.translate.endpoints import Member, load_assignment
from headrace_xds.translate.fragments import FragmentCache
from headrace_xds.translate.resources import Resource
from tests.fakes.ads_recorder import Recorder, until
from tests.fakes.mesh_ir import KEY, gateway_of, mesh
from tests.fakes.mesh_node import HOST, MeshNode, Seen, mesh_node

Sent = Mapping[str, str]
Part = ir.ServedVersion | ir.Route
GROUP = "gateway/eu"
INFER = "/v2/models/vision/infer"
VISION = b"\x0a\x06vision"
"""A message that names the model."""
ALWAYS = ((1, 10_000),)
"""All traffic to version 1."""
SERVICE = "/inference.GRPCInferenceService/"


@dataclass(frozen=True)
class Reply:
    """An answer to an HTTP request."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class MeshGateway:
    """What a test asks of a gateway."""

    def __init__(self, hub: Hub, recorder: Recorder, http: aiohttp.ClientSession) -> None:
        self.http = http
        self.recorder = recorder
        self.port = 0
        self.admin = ""
        self.channel: grpc.aio.Channel | None = None
        self._hub = hub
        self._cache = FragmentCache()
        self._published: list[Resource] = []

    def publish(self, mesh: ir.Mesh, nodes: Sequence[MeshNode]) -> None:
        """Publish a mesh, every version on every node."""
        self._published = []
        for type_url, found in translate(mesh, gateway_of(mesh), self._cache).items():
            self._hub.publish(GROUP, type_url, found)
            self._published += found.values()
        assignments = _assignments(mesh, nodes)
        self._hub.publish(GROUP, resources.ENDPOINTS, assignments)
        self._published += assignments.values()

    def publish_secrets(self, *secrets: Resource) -> None:
        """Publish these secrets and no others."""
        self.publish_only(resources.SECRET, *secrets)

    def publish_only(self, type_url: str, *found: Resource) -> None:
        """Publish these resources of a type and no others."""
        self._hub.publish(GROUP, type_url, {each.name: each for each in found})

    async def settle(self) -> None:
        """Wait until Envoy has acknowledged everything that it subscribes to."""

        def settled() -> bool:
            assert not self.recorder.nacks, self.recorder.nacks
            return self.recorder.holds(*self._published)

        await until(settled, within_s=20, what="every resource acknowledged")

    async def send(
        self, path: str, *, body: bytes = b"{}", key: str | None = KEY, sent: Sent | None = None
    ) -> Reply:
        """POST with some headers."""
        extra = dict(sent or {})
        if key is not None:
            extra["x-api-key"] = key
        url = f"http://{HOST}:{self.port}{path}"
        async with self.http.post(url, data=io.BytesIO(body), headers=extra) as answer:
            read = await answer.read()
            return Reply(answer.status, answer.headers, read)

    async def get(self, path: str, *, key: str | None = KEY) -> Reply:
        """GET."""
        extra = {} if key is None else {"x-api-key": key}
        async with self.http.get(f"http://{HOST}:{self.port}{path}", headers=extra) as answer:
            return Reply(answer.status, answer.headers, await answer.read())

    async def many(self, path: str, sent: Sequence[Sent]) -> None:
        """POST once for each set of headers, a few at a time; every answer is 200."""
        for start in range(0, len(sent), 16):
            batch = [self.send(path, sent=extra) for extra in sent[start : start + 16]]
            assert {reply.status for reply in await asyncio.gather(*batch)} == {200}

    async def raw(self, request: str) -> bytes:
        """First answer to bytes on a connection of their own."""
        reader, writer = await asyncio.open_connection(HOST, self.port)
        try:
            writer.write(request.encode())
            async with asyncio.timeout(10):
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", head)
                return head + await reader.readexactly(int(length[1]) if length else 0)
        finally:
            writer.close()

    async def grpc_bytes(self, method: str, body: bytes) -> Reply:
        """POST of a gRPC body that no client would send, over HTTP/1."""
        return await self.send(
            SERVICE + method, body=body, sent={"content-type": "application/grpc"}
        )

    def stream(self, metadata: Sequence[tuple[str, str]]) -> Any:
        """A ModelStreamInfer call."""
        assert self.channel is not None
        channel: Any = self.channel
        multi = channel.stream_stream(SERVICE + "ModelStreamInfer")
        return multi(metadata=metadata)

    async def call(self, method: str, message: bytes, *, key: str | None = KEY) -> dict[str, str]:
        """Unary gRPC call; returns the initial metadata or raises AioRpcError."""
        assert self.channel is not None
        metadata = [] if key is None else [("x-api-key", key)]
        channel: Any = self.channel
        multi = channel.unary_unary(SERVICE + method)
        call = multi(message, metadata=metadata, timeout=20)
        await call
        return {name: str(value) for name, value in await call.initial_metadata()}

    async def stat(self, name: str) -> int:
        """Value of a counter or gauge; 0 when it does not exist."""
        async with self.http.get(f"http://{self.admin}/stats?filter=^{name}$") as answer:
            text = await answer.text()
        return int(text.rpartition(":")[2]) if text.strip() else 0

    async def overrides(self) -> dict[str, str]:
        """Runtime values of Envoy."""
        async with self.http.get(f"http://{self.admin}/runtime") as answer:
            entries = json.loads(await answer.text())["entries"]
        return {key: entry["final_value"] for key, entry in entries.items()}

    async def updates(self) -> dict[str, str]:
        """How often listeners, clusters and filters were updated, and routes by table."""
        kinds = r"(lds|cds|rds|extension_config_discovery|scoped_rds)\..*update_success"
        pattern = f"filter={kinds}|listener_manager.listener_(modified|added)"
        async with self.http.get(f"http://{self.admin}/stats?{pattern}") as answer:
            lines = [line.partition(": ") for line in (await answer.text()).splitlines()]
        return {name: value for name, _, value in lines}

    async def hosts(self, cluster: str) -> list[dict[str, Any]]:
        """Hosts of a cluster with their health."""
        async with self.http.get(f"http://{self.admin}/clusters?format=json") as answer:
            for status in json.loads(await answer.text())["cluster_statuses"]:
                if status["name"] == cluster:
                    return list(status.get("host_statuses", ()))
        return []

    async def healthy(self, cluster: str, count: int, *, within_s: float = 10) -> None:
        """Wait until so many hosts of a cluster are healthy."""

        async def reached() -> bool:
            return sum(_is_healthy(host) for host in await self.hosts(cluster)) == count

        await until(reached, within_s=within_s, what=f"{count} healthy hosts in {cluster}")


def _assignments(mesh: ir.Mesh, nodes: Sequence[MeshNode]) -> dict[str, Resource]:
    """Every cluster's endpoints: all nodes."""
    made = {}
    for protocol in PROTOCOLS:
        clusters = [names.cluster(each.model, each.version, protocol) for each in mesh.versions]
        members = [_member(node, protocol) for node in nodes]
        for cluster in (names.node_cluster(protocol), *clusters):
            made[cluster] = load_assignment(cluster, members)
    return made


def _member(node: MeshNode, protocol: names.Protocol) -> Member:
    return Member(
        node=node.name,
        address=HOST,
        port=node.http_port if protocol == "http" else node.grpc_port,
        region=f"region-{node.priority}",
        zone="a",
        priority=node.priority,
        weight=node.weight,
        health=node.health,
    )


def _is_healthy(host: dict[str, Any]) -> bool:
    health = host.get("health_status", {})
    return not any(
        health.get(flag) for flag in ("failed_active_health_check", "failed_outlier_check")
    )


@asynccontextmanager
async def mesh_gateway(
    folder: Path, mesh: ir.Mesh, nodes: Sequence[MeshNode], *, secrets: Sequence[Resource] = ()
) -> AsyncIterator[MeshGateway]:
    """Run a gateway until the block ends; it has settled when the block begins."""
    recorder = Recorder()
    hub = Hub(observer=recorder, group_of=lambda node: node.id, now=time.monotonic)
    async with AsyncExitStack() as stack:
        ads = await server.serve(hub, f"{HOST}:0")
        stack.push_async_callback(ads.stop)
        http = await stack.enter_async_context(
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20))
        )
        gateway = MeshGateway(hub, recorder, http)
        gateway.publish(mesh, nodes)
        gateway.publish_secrets(*secrets)
        config = bootstrap(gateway_of(mesh), zone="eu-a", xds=(HOST, ads.port), admin=(HOST, 0))
        process = await _start(folder, config)
        stack.push_async_callback(_stop, process)
        gateway.admin = await _admin(folder, process)
        await gateway.settle()
        gateway.port = await _port(gateway)
        gateway.channel = await stack.enter_async_context(
            grpc.aio.insecure_channel(
                f"{HOST}:{gateway.port}", options=(("grpc.max_receive_message_length", -1),)
            )
        )
        yield gateway


async def _start(folder: Path, config: dict[str, Any]) -> asyncio.subprocess.Process:
    (folder / "envoy.json").write_text(json.dumps(config))
    arguments = ["-c", str(folder / "envoy.json"), "--log-path", str(folder / "envoy.log")]
    arguments += ["--admin-address-path", str(folder / "admin"), "--log-level", "info"]
    arguments += ["--concurrency", "1", "--disable-hot-restart", "--drain-time-s", "1"]
    return await asyncio.create_subprocess_exec(str(envoy()), *arguments)


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
    await process.wait()


async def _admin(folder: Path, process: asyncio.subprocess.Process) -> str:
    async with asyncio.timeout(20):
        while True:
            assert process.returncode is None, (folder / "envoy.log").read_text()
            if (folder / "admin").exists() and (text := (folder / "admin").read_text().strip()):
                return text
            await asyncio.sleep(0.01)


async def _port(gateway: MeshGateway) -> int:
    async with asyncio.timeout(20):
        while True:
            async with gateway.http.get(f"http://{gateway.admin}/listeners?format=json") as answer:
                for status in json.loads(await answer.text()).get("listener_statuses", ()):
                    port: int = status["local_address"]["socket_address"]["port_value"]
                    return port
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(
    folder: Path, *parts: Part, nodes: int = 2
) -> AsyncIterator[tuple[MeshGateway, list[MeshNode]]]:
    async with AsyncExitStack() as stack:
        fakes = [await stack.enter_async_context(mesh_node(f"n{i}")) for i in range(nodes)]
        made = mesh(*parts, port=0)
        gateway = await stack.enter_async_context(mesh_gateway(folder, made, fakes))
        for version in made.versions:
            for protocol in ("http", "grpc"):
                await gateway.healthy(f"m-{version.model}-{version.version}-{protocol}", nodes)
        yield gateway, fakes


def seen_by(nodes: list[MeshNode]) -> list[Seen]:
    return [seen for node in nodes for seen in node.seen]


async def grpc_codes(gateway: MeshGateway, calls: int) -> list[grpc.StatusCode]:
    """Statuses of the calls that failed."""
    codes = []
    for _ in range(calls):
        try:
            await gateway.call("ModelInfer", VISION)
        except grpc.aio.AioRpcError as error:
            codes.append(error.code())
    return codes


def long_field(number: int, size: int) -> bytes:
    """A length-delimited protobuf field of zeros."""
    length = size
    out = bytearray([number << 3 | 2])
    while length > 0x7F:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes(out) + bytes([length]) + bytes(size)
