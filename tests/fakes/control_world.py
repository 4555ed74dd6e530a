"""A control server process, a real Envoy and fake GPU nodes, on free ports, for one test."""

import asyncio
import json
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import aiohttp

from headrace import ir
from headrace.names import cluster
from headrace_xds.binaries import envoy
from headrace_xds.local.ports import free_ports
from headrace_xds.translate.bootstrap import bootstrap
from tests.fakes.control_process import Launch, Server, start
from tests.fakes.gpu_node import FakeGpuNode

DEADLINE_S = 30.0
LOG_SHOWN = 20_000  # characters of each log, the last ones
KEY = "demo"

MESH = """\
apiVersion: headrace.dev/v1alpha1
kind: Mesh
metadata: {name: test}
spec:
  orcaPort: %(orca_port)d
  regions:
  - name: eu
    zones: [eu-1]
    failover: [us]
    gateways: [{name: eu, port: %(gateway_port)d}]
  - name: us
    zones: [us-1]
---
apiVersion: headrace.dev/v1alpha1
kind: Pool
metadata: {name: eu-a}
spec: {region: eu, zone: eu-1, gpu: {type: cpu}}
---
apiVersion: headrace.dev/v1alpha1
kind: Pool
metadata: {name: us-a}
spec: {region: us, zone: us-1, gpu: {type: cpu}}
---
apiVersion: headrace.dev/v1alpha1
kind: Tenant
metadata: {name: demo}
spec:
  apiKeys: [{sha256: 2a97516c354b68848cdbd8f54a226a0a55b21ed138e207ad6c5cbb9c00aa5aea}]
"""
MODEL = """\
apiVersion: headrace.dev/v1alpha1
kind: Model
metadata: {name: echo}
spec:
  inputs: [{name: data, datatype: BYTES, shape: [1]}]
  outputs: [{name: data, datatype: BYTES, shape: [1]}]
  versions:
  - {version: 1, executor: identity}
  - {version: 2, executor: identity}
  aliases: {stable: 1}
  balance: least-loaded
  idempotent: true
"""
ROUTE = """\
apiVersion: headrace.dev/v1alpha1
kind: Route
metadata: {name: echo}
spec:
  model: echo
  split: [{version: %d}]
"""


class ControlWorld:
    """What a test does to the control server and sees of it. Use as an async context manager."""

    def __init__(
        self, folder: Path, *, return_grace_s: float | None = None, launch: Launch | None = None
    ) -> None:
        self._launch = launch or start
        self.config = folder / "config"
        self.state = folder / "state"
        self.secrets: Path | None = None
        """Folder of secrets; none unless a test names one before the start."""
        self.gate: Path | None = None
        """Envoy of the gate; the ordinary one unless a test names another before the start."""
        self.nodes: dict[str, FakeGpuNode] = {}
        self.failures: list[str] = []
        self.answered = 0
        self.server: Server | None = None
        self._folder = folder
        self._stack = AsyncExitStack()
        self._xds_port, self.admin_port, self._envoy_admin, self.gateway_port = free_ports(
            4, addresses=("127.0.0.1",)
        )
        self._orca_port = free_ports(1, addresses=("127.0.3.1",))[0]
        self._return_grace_s = return_grace_s
        self._ports_file = folder / "ports.json"

    async def __aenter__(self) -> Self:
        self.http = await self._stack.enter_async_context(
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))
        )
        self._tasks = await self._stack.enter_async_context(asyncio.TaskGroup())
        self._stack.push_async_callback(self.stop)
        self.config.mkdir()
        ports = {"orca_port": self._orca_port, "gateway_port": self.gateway_port}
        (self.config / "mesh.yaml").write_text(MESH % ports)
        (self.config / "model.yaml").write_text(MODEL)
        self.route_to(1)
        return self

    async def __aexit__(self, *failure: Any) -> None:
        await self._stack.__aexit__(*failure)
        # Shown by the test runner where a test fails, which is when somebody wants them.
        for path in self._folder.glob("*.log"):
            print(f"--- {path.name}", path.read_text()[-LOG_SHOWN:], sep="\n")

    # --- processes ------------------------------------------------------------------------------

    async def up(self, *nodes: str) -> None:
        """Start everything, and wait until the gateway answers."""
        await self.start()
        for name in nodes or ("n1", "n2"):
            await self.add_node(name)
        await self.start_envoy()
        await self.serving()
        self._first = await self._meaning()

    async def renew(self) -> None:
        """Back to how ``up`` left it, whatever a test has done: running, connected, as at first."""
        self.write("model.yaml", MODEL)
        self.route_to(1)
        if self.server is None:
            await self.start()
        for node in self.nodes.values():
            node.refusals.clear()
            node.loads.clear()
            node.strays.clear()
            if not node.connected_to_control:
                await node.disconnect()
                node.connect()
        await until(self._is_as_new)
        await self.serving()

    async def start(self) -> None:
        """Start the control server and wait until it listens."""
        await self.spawn()
        ports_file = self._ports_file

        async def listens() -> bool:
            assert self.server is not None
            assert self.server.returncode is None, self.log()
            return ports_file.exists()

        await until(listens)
        assert json.loads(ports_file.read_text()) == {
            "xds": self._xds_port,
            "admin": self.admin_port,
        }

    async def spawn(self) -> None:
        """Start the control server and do not wait for it."""
        ports_file = self._ports_file
        ports_file.unlink(missing_ok=True)
        arguments = ["--config", str(self.config)]
        arguments += ["--state-dir", str(self.state), "--ports-file", str(ports_file)]
        arguments += ["--xds-address", f"127.0.0.1:{self._xds_port}"]
        arguments += ["--admin-address", f"127.0.0.1:{self.admin_port}"]
        if self.secrets is not None:
            arguments += ["--secrets", str(self.secrets)]
        if self.gate is not None:
            arguments += ["--envoy", str(self.gate)]
        if self._return_grace_s is not None:
            arguments += ["--return-grace", str(self._return_grace_s)]
        self.server = await self._launch(arguments, self._folder / "control.log")

    async def stop(self, number: int = signal.SIGTERM) -> int:
        """End the control server; its exit status."""
        if self.server is None:
            return 0
        if self.server.returncode is None:
            self.server.send_signal(number)
        status = await self.server.wait()
        self.server = None
        return status

    def log(self) -> str:
        """What the control server wrote."""
        return (self._folder / "control.log").read_text()

    async def start_envoy(self) -> None:
        """Start the gateway of region eu."""
        gateway = ir.Gateway("eu", "eu", "127.0.0.1", self.gateway_port)
        config = bootstrap(
            gateway,
            zone="eu-1",
            xds=("127.0.0.1", self._xds_port),
            admin=("127.0.0.1", self._envoy_admin),
        )
        # A test need not wait as long for Envoy's next attempt as a crowd of gateways should.
        _shorten_back_off(config)
        path = self._folder / "envoy.json"
        path.write_text(json.dumps(config))
        process = await asyncio.create_subprocess_exec(
            str(envoy()),
            *("-c", str(path), "--concurrency", "1", "--disable-hot-restart"),
            *("--log-path", str(self._folder / "envoy.log"), "--log-level", "warning"),
        )

        async def end() -> None:
            if process.returncode is None:
                process.kill()
            await process.wait()

        self._stack.push_async_callback(end)

    async def add_node(
        self, name: str, *, region: str = "eu", refusals: Mapping[str, str] | None = None
    ) -> FakeGpuNode:
        """Start a fake GPU node on an address of its own."""
        node = FakeGpuNode(
            name,
            pool=f"{region}-a",
            region=region,
            zone=f"{region}-1",
            xds=f"127.0.0.1:{self._xds_port}",
            address=f"127.0.3.{len(self.nodes) + 1}",
            orca_port=self._orca_port,
        )
        node.refusals.update(refusals or {})
        self.nodes[name] = await self._stack.enter_async_context(node)
        return node

    # --- configuration --------------------------------------------------------------------------

    def write(self, name: str, text: str) -> None:
        """Put a file into the configuration folder, as an editor that writes and renames."""
        partial = self.config / f".{name}.new"
        partial.write_text(text)
        partial.replace(self.config / name)

    def route_to(self, version: int) -> None:
        """Send all requests for the model to a version."""
        self.write("route.yaml", ROUTE % version)

    # --- looking --------------------------------------------------------------------------------

    async def admin(self, path: str) -> Any:
        """JSON of the admin API."""
        async with self.http.get(f"http://127.0.0.1:{self.admin_port}{path}") as answer:
            return await answer.json(content_type=None)

    async def text(self, path: str) -> str:
        """Text of a page of the admin API."""
        async with self.http.get(f"http://127.0.0.1:{self.admin_port}{path}") as answer:
            assert answer.status == 200, path
            return await answer.text()

    async def generation(self) -> int:
        """Number of the configuration in effect."""
        return int((await self.admin("/v1/generation"))["generation"])

    async def send(self, method: str, path: str, body: str = "", **headers: str) -> tuple[int, Any]:
        """Status and JSON of a request to the admin API."""
        url = f"http://127.0.0.1:{self.admin_port}{path}"
        async with self.http.request(method, url, data=body, headers=headers) as answer:
            return answer.status, await answer.json(content_type=None)

    async def held(self, node: str) -> dict[str, dict[str, Any]]:
        """What the control server says about the versions on a node."""
        for item in (await self.admin("/v1/nodes"))["items"]:
            if item["name"] == node:
                return {f"{model['model']}@{model['version']}": model for model in item["models"]}
        return {}

    async def endpoints(self, version: int = 1) -> dict[str, dict[str, Any]]:
        """Endpoints that are published for a version, by node."""
        name = cluster("echo", version, "http")
        for item in (await self.admin("/v1/endpoints"))["items"]:
            if item["cluster"] == name:
                return {endpoint["node"]: endpoint for endpoint in item["endpoints"]}
        return {}

    async def hosts(self, version: int = 1) -> dict[str, int]:
        """Weights of the hosts that Envoy has for a version, by address."""
        name = cluster("echo", version, "http")
        for status in (await self.envoy_page("/clusters?format=json"))["cluster_statuses"]:
            if status["name"] == name:
                return {
                    host["address"]["socket_address"]["address"]: host["weight"]
                    for host in status.get("host_statuses", ())
                }
        return {}

    async def stats(self, pattern: str) -> dict[str, int]:
        """Counters and gauges of Envoy."""
        found = (await self.envoy_page(f"/stats?format=json&filter={pattern}"))["stats"]
        return {stat["name"]: stat["value"] for stat in found if "value" in stat}

    async def infer(self) -> str | None:
        """Version that answers a request through the gateway, None when it fails."""
        url = f"http://127.0.0.1:{self.gateway_port}/v2/models/echo/infer"
        try:
            async with self.http.post(url, data=b"{}", headers={"x-api-key": KEY}) as answer:
                body = await answer.text()
                if answer.status == 200:
                    self.answered += 1
                    return str(json.loads(body)["headers"]["x-headrace-version"])
                self.failures.append(f"{answer.status} {body}")
        except aiohttp.ClientError as error:
            self.failures.append(repr(error))
        return None

    async def serving(self, version: str = "1") -> None:
        """Wait until the gateway answers, then forget what failed before."""

        async def answers() -> bool:
            return await self.infer() == version

        await until(answers)
        self.failures.clear()

    async def _meaning(self) -> Any:
        """What the configuration in effect says."""
        items = (await self.admin("/v1/objects"))["items"]
        return [(item["kind"], item["metadata"]["name"], item["spec"]) for item in items]

    async def _is_as_new(self) -> bool:
        return await self._meaning() == self._first and await self.is_whole()

    async def is_whole(self) -> bool:
        """Whether every node serves every version, to the control server and to Envoy."""
        if not (await self.admin("/v1/generation"))["accepted"]:
            return False
        for version in (1, 2):
            found = (await self.endpoints(version)).values()
            healthy = [item for item in found if item["health"] == "healthy"]
            if not len(healthy) == len(await self.hosts(version)) == len(self.nodes):
                return False
        held = [(await self.held(name)).values() for name in self.nodes]
        return all(item["state"] == "ready" for items in held for item in items)

    def under_load(self) -> "_Load":
        """Requests without pause while the block runs; none of them may fail."""
        return _Load(self)

    async def envoy_page(self, path: str) -> Any:
        """JSON of a page of Envoy's own."""
        try:
            async with self.http.get(f"http://127.0.0.1:{self._envoy_admin}{path}") as answer:
                return await answer.json(content_type=None)
        except aiohttp.ClientConnectionError:
            return {"cluster_statuses": [], "stats": []}


class _Load:
    def __init__(self, world: ControlWorld) -> None:
        self._world = world
        self._done = asyncio.Event()

    async def __aenter__(self) -> None:
        self._tasks = await asyncio.TaskGroup().__aenter__()
        self._before = self._world.answered
        self._tasks.create_task(self._run())

    async def __aexit__(self, *failure: Any) -> None:
        self._done.set()
        await self._tasks.__aexit__(*failure)
        assert self._world.failures == []
        assert self._world.answered > self._before

    async def _run(self) -> None:
        while not self._done.is_set():
            await self._world.infer()
            await asyncio.sleep(0.005)


def _shorten_back_off(bootstrap: Any) -> None:
    (service,) = bootstrap["dynamic_resources"]["ads_config"]["grpc_services"]
    back_off = service["envoy_grpc"]["retry_policy"]["retry_back_off"]
    back_off.update(base_interval="0.1s", max_interval="0.5s")


async def until(condition: Callable[[], Awaitable[bool]], *, within_s: float = DEADLINE_S) -> float:
    """Wait until a condition holds; the seconds it took."""
    started_s = time.monotonic()
    async with asyncio.timeout(within_s):
        while True:
            if await condition():
                break
            await asyncio.sleep(0.02)
    return time.monotonic() - started_s
