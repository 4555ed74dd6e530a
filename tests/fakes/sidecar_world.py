"""One GPU node of real programs, and a control server that does and records what the test says.

The model server, its tritonserver and the sidecar are processes; the control server is the real
hub and ADS server, run by the test. Sockets lie in a folder with a short name.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Self

import aiohttp
import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration
from xds.data.orca.v3.orca_load_report_pb2 import OrcaLoadReport
from xds.service.orca.v3.orca_pb2 import OrcaLoadReportRequest

from headrace import headers, ir, names
from headrace.assignment import Assignment
from headrace_xds import offers
from headrace_xds.hub import Hub
from headrace_xds.messages import NodeInfo
from headrace_xds.server import AdsServer, serve
from headrace_xds.translate.resources import Resource

NODE = "n1"
GROUP = names.gpu_node_id(NODE)
DEADLINE_S = 40.0
POLL_S = 0.05
SOURCE = ir.Source("Model", "test", "test.yaml", 1)


class Recorded:
    """What a sidecar told the control server; an observer of the hub."""

    def __init__(self) -> None:
        self.node: NodeInfo | None = None
        self.streams: set[int] = set()
        self.held: dict[str, str] = {}
        self.removed: list[str] = []
        self.acks: list[str] = []
        self.refusals: dict[str, str] = {}
        self.claims: list[Mapping[str, str]] = []
        self.left = False

    def connected(self, stream_id: int, node: NodeInfo) -> None:
        self.node, self.left = node, False
        self.streams.add(stream_id)

    def disconnected(self, stream_id: int, node: NodeInfo) -> None:
        self.streams.discard(stream_id)

    def claimed(self, node: NodeInfo, type_url: str, versions: Mapping[str, str]) -> None:
        self.claims.append(dict(versions))

    def acked(self, node: NodeInfo, type_url: str, versions: Mapping[str, str]) -> None:
        for name, version in versions.items():
            self.acks.append(name)
            if version:
                self.held[name] = version
            else:
                self.held.pop(name, None)
                self.removed.append(name)

    def nacked(
        self, node: NodeInfo, type_url: str, versions: Mapping[str, str], message: str
    ) -> None:
        self.refusals.update(dict.fromkeys(versions, message))

    def leaving(self, node: NodeInfo, type_url: str) -> None:
        self.left = True

    def held_back(self, node: NodeInfo, missing: Mapping[str, frozenset[str]]) -> None:
        """Sidecars take no routes."""


class SidecarWorld:
    """Use as an async context manager."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hr-n"))
        self.control = Recorded()
        self.wanted: dict[str, Assignment] = {}
        self.ports: dict[str, int] = {}
        self._stack = AsyncExitStack()
        self._sidecar: asyncio.subprocess.Process | None = None
        self._model_server: asyncio.subprocess.Process | None = None
        self._server: AdsServer | None = None
        self._hub: Hub | None = None
        self._xds_port = 0

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=30)
        self.http = await self._stack.enter_async_context(aiohttp.ClientSession(timeout=timeout))
        agent = aiohttp.UnixConnector(str(self.folder / "agent.sock"))
        self.agent = await self._stack.enter_async_context(aiohttp.ClientSession(connector=agent))
        return self

    async def __aexit__(self, *failure: Any) -> None:
        await self.stop_sidecar()
        await self.stop_model_server()
        await self.stop_control()
        await self._stack.aclose()
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- programs -------------------------------------------------------------------------------

    async def start_control(self) -> None:
        """Begin to listen; again on the same port after a stop."""
        self._hub = Hub(
            observer=self.control,
            group_of=lambda node: node.id,
            now=asyncio.get_running_loop().time,
        )
        self._server = await serve(self._hub, f"127.0.0.1:{self._xds_port}")
        self._xds_port = self._server.port
        self._publish()

    async def stop_control(self) -> None:
        """End the control server."""
        if self._server is not None:
            await self._server.stop()
        self._server = self._hub = None

    async def start_model_server(self) -> None:
        """Start the model server; returns once Triton answers."""
        ports = self.folder / "triton-ports.json"
        ports.unlink(missing_ok=True)
        self._model_server = await self._start(
            "headrace_models",
            *("--state-dir", f"{self.folder}/t", "--agent-socket", f"{self.folder}/agent.sock"),
            *("--cache-dir", f"{self.folder}/cache", "--ports-file", str(ports)),
        )
        await until(ports.exists, self.log)

    async def stop_model_server(self) -> int:
        """End the model server; its exit status."""
        process, self._model_server = self._model_server, None
        return await _stop(process)

    async def start_sidecar(self, *flags: str) -> None:
        """Start the sidecar; returns once it listens."""
        ports = self.folder / "ports.json"
        ports.unlink(missing_ok=True)
        self._sidecar = await self._start(
            "headrace_sidecar.gpu",
            *self._flags(),
            *("--ports-file", str(ports), "--state-dir", f"{self.folder}/s"),
            *flags,
        )
        await until(ports.exists, self.log)
        self.ports = json.loads(ports.read_text())

    async def second_sidecar(self, *flags: str) -> tuple[int, str]:
        """Exit status and last words of another sidecar with these flags."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headrace_sidecar.gpu", *self._flags(), *flags),
            *("--state-dir", f"{self.folder}/s2"),
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(DEADLINE_S):
            _, said = await process.communicate()
        assert process.returncode is not None
        return process.returncode, said.decode()

    def _flags(self) -> tuple[str, ...]:
        return (
            *("--node", NODE, "--pool", "test", "--region", "eu", "--zone", "eu-1"),
            *("--http-port", "0", "--grpc-port", "0", "--orca-port", "0", "--metrics-port", "0"),
            *("--xds", f"127.0.0.1:{self._xds_port}"),
            *("--agent-socket", f"{self.folder}/agent.sock"),
            *("--triton-socket", f"{self.folder}/t/triton.sock"),
        )

    async def stop_sidecar(self) -> int:
        """End the sidecar; its exit status."""
        process, self._sidecar = self._sidecar, None
        return await _stop(process)

    def signal_sidecar(self, number: int) -> None:
        """Send the sidecar a signal."""
        assert self._sidecar is not None
        self._sidecar.send_signal(number)

    async def sidecar_ends(self) -> int:
        """Exit status of the sidecar, once it ends by itself."""
        assert self._sidecar is not None
        process, self._sidecar = self._sidecar, None
        async with asyncio.timeout(DEADLINE_S):
            return await process.wait()

    async def _start(self, module: str, *arguments: str) -> asyncio.subprocess.Process:
        with (self.folder / "log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-m", module, *arguments, stdout=log, stderr=log
            )

    def log(self) -> str:
        """What the programs wrote last."""
        return (self.folder / "log").read_text(errors="replace")[-6000:]

    # --- what the control server wants ----------------------------------------------------------

    def want(self, *assignments: Assignment) -> None:
        """Assign these versions, beside what is assigned already."""
        self.wanted.update({one.name: one for one in assignments})
        self._publish()

    def want_no_more(self, *assignments: Assignment) -> None:
        """Take these versions back."""
        for one in assignments:
            self.wanted.pop(one.name, None)
        self._publish()

    def _publish(self) -> None:
        if self._hub is not None:
            offered = {name: _offer(one) for name, one in self.wanted.items()}
            self._hub.publish(GROUP, names.ASSIGNMENT_TYPE_URL, offered)

    async def ready(self, *assignments: Assignment) -> None:
        """Assign versions and wait until they are acknowledged."""
        self.want(*assignments)
        await self.acked(*assignments)

    async def acked(self, *assignments: Assignment) -> None:
        """Wait until these versions are acknowledged."""
        await until(lambda: {one.name for one in assignments} <= self.control.held.keys(), self.log)

    # --- what callers see -----------------------------------------------------------------------

    def url(self, assignment: Assignment, ask: str) -> str:
        """Where a version is asked."""
        version = f"{assignment.model}/versions/{assignment.version}"
        return f"http://127.0.0.1:{self.ports['http']}/v2/models/{version}/{ask}"

    async def infer(self, assignment: Assignment, text: str = "hello") -> tuple[int, Any]:
        """Status and body of an inference, sent as a gateway would."""
        tensor = {"name": "data", "datatype": "BYTES", "shape": [1], "data": [text]}
        stamped = {headers.VERSION: str(assignment.version)}
        async with self.http.post(
            self.url(assignment, "infer"), json={"inputs": [tensor]}, headers=stamped
        ) as response:
            return response.status, await response.json()

    async def answers(self, assignment: Assignment) -> bool:
        """Whether the node says that a version is ready."""
        async with self.http.get(self.url(assignment, "ready")) as response:
            return response.status == 200

    async def page(self, path: str = "/metrics") -> str:
        """A page of the metrics port."""
        async with self.http.get(f"http://127.0.0.1:{self.ports['metrics']}{path}") as response:
            assert response.status == 200, await response.text()
            return await response.text()

    async def triton(self) -> dict[str, Any]:
        """What the model server says of Triton."""
        async with self.agent.get("http://agent/v1/status") as response:
            status: dict[str, Any] = (await response.json())["triton"]
            return status

    def stub(self, assignment: Assignment) -> int:
        """Process id of the newest Triton stub of a version."""
        return max(self.stubs(assignment))

    def stubs(self, assignment: Assignment) -> list[int]:
        """Process ids of the Triton stubs of a version."""
        model = f"/{assignment.model}.{assignment.version}/"
        found = []
        for place in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                command = place.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if "triton_python_backend_stub" in command and str(self.folder) in command:
                found += [int(place.parent.name)] if model in command else []
        return found


def _offer(assignment: Assignment) -> Resource:
    served = ir.ServedVersion(
        model=assignment.model,
        version=assignment.version,
        pools=("test",),
        balance="round-robin",
        max_requests=1,
        max_pending_requests=1,
        retry_budget_percent=20,
        idempotent=assignment.idempotent,
        shadow_max_requests=None,
        assignment=assignment,
        source=SOURCE,
    )
    return offers.offer(served, assignment.attempt)


@asynccontextmanager
async def load_reports(
    world: SidecarWorld, *, interval_s: float = 0.1
) -> AsyncIterator[Callable[[], Any]]:
    """A subscription to the node's load reports: gives the next one when called."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{world.ports['orca']}") as channel:
        stream = channel.unary_stream(
            "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics",
            request_serializer=OrcaLoadReportRequest.SerializeToString,
            response_deserializer=OrcaLoadReport.FromString,
        )
        asked = OrcaLoadReportRequest(report_interval=Duration(nanos=int(interval_s * 1e9)))
        call = stream(asked)
        try:
            yield call.read
        finally:
            call.cancel()


async def until(
    holds: Callable[[], Any], log: Callable[[], str], *, deadline_s: float = DEADLINE_S
) -> float:
    """Wait until a condition, plain or awaitable, holds; seconds that it took."""
    started_s = time.monotonic()
    while True:
        found = holds()
        if await found if asyncio.iscoroutine(found) else found:
            return time.monotonic() - started_s
        if time.monotonic() - started_s > deadline_s:
            raise AssertionError(f"it did not come to hold within {deadline_s} s\n{log()}")
        await asyncio.sleep(POLL_S)


async def _stop(process: asyncio.subprocess.Process | None) -> int:
    if process is None:
        return 0
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(DEADLINE_S):
                await process.wait()
        except TimeoutError:
            os.kill(process.pid, signal.SIGKILL)
    return await process.wait()
