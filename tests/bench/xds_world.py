"""A control server with many models and proxies: two of them real Envoys, the others streams.

One model, ``hot``, has a thousand endpoints that nobody answers at; ``flip`` has one, which is
there or not; the others have none. All are authored in one text and checked as any other.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

from headrace import ir
from headrace_xds.binaries import envoy
from headrace_xds.local.ports import free_ports
from headrace_xds.translate.bootstrap import bootstrap
from tests.fakes.gpu_node import FakeGpuNode

HOST: Final = "127.0.0.1"
NODE_ADDRESS: Final = "127.0.1.1"
KEY: Final = "demo"
GATEWAYS: Final = ("eu", "us")
_START_S: Final = 300.0
_ROOT: Final = Path(__file__).parents[2]

_MESH = """\
apiVersion: headrace.dev/v1alpha1
kind: Mesh
metadata: {name: bench}
spec:
  orcaPort: %(orca)d
  regions:
  - {name: eu, zones: [eu-1], gateways: [{name: eu, port: %(eu)d}], failover: [us]}
  - {name: us, zones: [us-1], gateways: [{name: us, port: %(us)d}], failover: [eu]}
---
apiVersion: headrace.dev/v1alpha1
kind: Pool
metadata: {name: idle}
spec: {region: eu, zone: eu-1, gpu: {type: cpu}}
---
apiVersion: headrace.dev/v1alpha1
kind: Pool
metadata: {name: live}
spec: {region: eu, zone: eu-1, gpu: {type: cpu}}
---
# The key is "demo".
apiVersion: headrace.dev/v1alpha1
kind: Tenant
metadata: {name: demo}
spec:
  apiKeys: [{sha256: 2a97516c354b68848cdbd8f54a226a0a55b21ed138e207ad6c5cbb9c00aa5aea}]
---
apiVersion: headrace.dev/v1alpha1
kind: Pool
metadata: {name: listed}
spec:
  region: eu
  zone: eu-1
  gpu: {type: cpu}
  discovery:
    type: static
    nodes:
%(nodes)s
"""
_NODE = "    - {name: n%d, address: 127.9.%d.%d, httpPort: 18080, grpcPort: 18081, orcaPort: %d}"
_MODEL = """\
---
apiVersion: headrace.dev/v1alpha1
kind: Model
metadata: {name: %(name)s}
spec:
  inputs: [{name: data, datatype: BYTES, shape: [1]}]
  outputs: [{name: data, datatype: BYTES, shape: [1]}]
  versions: [{version: 1, executor: identity}]
  aliases: {stable: 1}
  placement: {pools: [%(pools)s]}
  balance: round-robin
  idempotent: true
"""
_ROUTE = """\
apiVersion: headrace.dev/v1alpha1
kind: Route
metadata: {name: %(name)s}
spec:
  model: %(name)s
  split: [{version: 1}]
  timeout: %(timeout)ds
"""


def mesh_text(models: int, endpoints: int, ports: dict[str, int]) -> str:
    """Everything but the routes."""
    nodes = "\n".join(
        _NODE % (number, number // 250, number % 250 + 1, ports["orca"])
        for number in range(endpoints)
    )
    pools = {"hot": "listed, live", "flip": "live"}
    names = [*pools, *(f"m{number}" for number in range(models - len(pools)))]
    head = _MESH % {**ports, "nodes": nodes}
    return head + "".join(_MODEL % {"name": n, "pools": pools.get(n, "idle")} for n in names)


def route_text(name: str, timeout_s: int) -> str:
    """Route of a model; every timeout makes another route table."""
    return _ROUTE % {"name": name, "timeout": timeout_s}


@dataclass
class Told:
    """What the clients told, and who waits for it."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def last(self, after: int, wanted: Callable[[dict[str, Any]], bool], count: int) -> float:
        """When the last of so many lines past a position was told."""
        async with asyncio.timeout(_START_S):
            while True:
                found = [float(line["at_s"]) for line in self.lines[after:] if wanted(line)]
                if len(found) >= count:
                    return max(found[:count])
                self.news.clear()
                await self.news.wait()


class World:
    """What runs."""

    def __init__(self, folder: Path, *, models: int, endpoints: int, streams: int) -> None:
        self.folder = folder
        self.streams = streams
        self.told = Told()
        self.server: asyncio.subprocess.Process | None = None
        (xds, admin, eu, us, eu_admin, us_admin) = free_ports(6, addresses=(HOST,))
        self.xds, self.admin = f"{HOST}:{xds}", f"http://{HOST}:{admin}"
        self.gateways = {"eu": eu, "us": us}
        self._envoy_admins = {"eu": eu_admin, "us": us_admin}
        self._orca_port = free_ports(1, addresses=(NODE_ADDRESS,))[0]
        self._admin_port = admin
        config = folder / "config"
        config.mkdir()
        (config / "mesh.yaml").write_text(
            mesh_text(models, endpoints, {**self.gateways, "orca": self._orca_port})
        )
        (config / "routes.yaml").write_text(route_text("m0", 30))

    async def start_server(self) -> float:
        """Start the control server; when it listened."""
        ports_file = self.folder / "ports.json"
        ports_file.unlink(missing_ok=True)
        with (self.folder / "server.log").open("ab") as log:
            self.server = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "headrace_xds", "--config", str(self.folder / "config")),
                *("--state-dir", str(self.folder / "state"), "--ports-file", str(ports_file)),
                *("--xds-address", self.xds, "--admin-address", self.admin.partition("//")[2]),
                *("--return-grace", "0.5"),
                stderr=log,
            )
        async with asyncio.timeout(_START_S):
            while not ports_file.exists():
                if self.server.returncode is not None:
                    raise RuntimeError((self.folder / "server.log").read_text()[-2000:])
                await asyncio.sleep(0.005)
        return time.monotonic()

    async def stop_server(self) -> None:
        """Stop it."""
        if self.server is not None and self.server.returncode is None:
            self.server.terminate()
            await self.server.wait()

    async def all_in_effect(self, http: aiohttp.ClientSession, proxies: int) -> float:
        """Wait until so many proxies are connected and have everything; when that was seen."""
        async with asyncio.timeout(_START_S):
            while True:
                async with http.get(f"{self.admin}/v1/generation") as answer:
                    found = (await answer.json())["proxies"]
                if found["connected"] >= proxies and found["inEffect"] == found["connected"]:
                    return time.monotonic()
                await asyncio.sleep(0.1)

    async def infer(self, http: aiohttp.ClientSession, gateway: str, model: str) -> int:
        """Status of a request through a gateway."""
        url = f"http://{HOST}:{self.gateways[gateway]}/v2/models/{model}/infer"
        async with http.post(url, data=b"{}", headers={"x-api-key": KEY}) as answer:
            await answer.read()
            return answer.status

    def node(self) -> FakeGpuNode:
        """The GPU node of pool ``live``, not started."""
        return FakeGpuNode(
            "n-live",
            pool="live",
            region="eu",
            zone="eu-1",
            xds=self.xds,
            address=NODE_ADDRESS,
            orca_port=self._orca_port,
        )

    async def start_envoy(self, gateway: str) -> asyncio.subprocess.Process:
        """Start a real Envoy."""
        made = bootstrap(
            ir.Gateway(gateway, gateway, HOST, self.gateways[gateway]),
            zone=f"{gateway}-1",
            xds=(HOST, int(self.xds.rpartition(":")[2])),
            admin=(HOST, self._envoy_admins[gateway]),
        )
        path = self.folder / f"envoy-{gateway}.json"
        path.write_text(json.dumps(made))
        return await asyncio.create_subprocess_exec(
            str(envoy()),
            *("-c", str(path), "--concurrency", "1", "--disable-hot-restart"),
            *("--log-path", str(self.folder / f"envoy-{gateway}.log"), "--log-level", "warning"),
        )

    async def start_clients(self) -> asyncio.subprocess.Process:
        """Start the process of streams; what it tells goes to ``told``."""
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.bench.xds_clients", self.xds, str(self.streams)),
            stdout=asyncio.subprocess.PIPE,
            cwd=_ROOT,
        )

    async def listen(self, clients: asyncio.subprocess.Process) -> None:
        """Take in what the clients tell until they end."""
        assert clients.stdout is not None
        async for line in clients.stdout:
            self.told.lines.append(json.loads(line))
            self.told.news.set()


@asynccontextmanager
async def running(world: World) -> AsyncIterator[FakeGpuNode]:
    """Start everything; the GPU node, connected."""
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        stack.push_async_callback(world.stop_server)
        await world.start_server()
        node = await stack.enter_async_context(world.node())
        for gateway in GATEWAYS:
            stack.push_async_callback(_end, await world.start_envoy(gateway))
        clients = await world.start_clients()
        stack.push_async_callback(_end, clients)
        tasks.create_task(world.listen(clients))
        await world.told.last(0, lambda line: line.get("event") == "opened", 1)
        yield node


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()
