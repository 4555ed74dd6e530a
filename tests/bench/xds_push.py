"""How long a change takes to reach a thousand proxies, and what many models cost to compile.

A control server with its gate serves a thousand delta streams and two real Envoys. Changes follow
one another, each begun when the last stream has acknowledged the one before. Streams, server,
Envoys and the benchmark share the processors of the machine, and the table says how many there are.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp

from headrace_xds.compiler import check
from headrace_xds.translate.fragments import FragmentCache
from headrace_xds.translate.resources import ENDPOINTS, ROUTES
from tests.bench.processes import cpu_s, rss_bytes
from tests.bench.sample import Sample, median
from tests.bench.xds_world import GATEWAYS, World, mesh_text, route_text, running
from tests.fakes.gpu_node import FakeGpuNode

GOALS: Mapping[str, tuple[str, float]] = {
    "eds_p99_ms": ("<=", 50.0),
    "route_p99_ms": ("<=", 250.0),
    "cold_compile_1000_s": ("<=", 5.0),
    "edit_ms": ("<=", 10.0),
    "storm_s": ("<=", 3.0),
    "rss_growth_mb": ("<=", 10.0),
}
MEANINGS: Mapping[str, str] = {
    "eds_p99_ms": "from a GPU node's word that it serves, or goes, to the last stream's "
    "acknowledgement of the endpoints, a thousand of them",
    "eds_traffic_p99_ms": "from a GPU node's word that it serves to the first answer through both "
    "real Envoys",
    "route_p99_ms": "from the edit at the admin API, gate included, to the last stream's "
    "acknowledgement of the route table",
    "cold_compile_1000_s": "from YAML to Envoy's resources, lint included, nothing cached",
    "edit_ms": "the same after an edit of one route, median; the gate not included",
    "storm_s": "from a restarted server that listens until every stream is back and has everything",
    "rss_growth_mb": "memory of the control server at the end of the changes, less after the first "
    "sixth of them",
}
_EDITED: Final = "m0"

Say = Callable[[str], None]
Row = dict[str, Any]


@dataclass(frozen=True)
class Effort:
    """How much of everything."""

    models: int
    endpoints: int
    streams: int
    churn_s: float
    edits: int
    storms: int


FULL: Final = Effort(models=1000, endpoints=1000, streams=1000, churn_s=60, edits=20, storms=3)
QUICK: Final = Effort(models=100, endpoints=100, streams=50, churn_s=5, edits=5, storms=1)


def run(*, quick: bool, say: Say) -> tuple[Mapping[str, float], Sequence[Row]]:
    """Measure everything; figures and rows."""
    effort = QUICK if quick else FULL
    say(f"compiling {effort.models} models, then {effort.edits} edits")
    compiled = compiling(effort)
    with tempfile.TemporaryDirectory(prefix="hr-x") as name:
        pushed, storms = asyncio.run(_pushing(Path(name), effort, say))
    return figures(compiled, pushed, storms), [compiled, *pushed, *storms]


def compiling(effort: Effort) -> Row:
    """Seconds of the first compilation, milliseconds of an edit."""
    ports = {"eu": 10000, "us": 10001, "orca": 18082}
    mesh, cache = mesh_text(effort.models, effort.endpoints, ports), FragmentCache()

    def compiled(timeout_s: int) -> float:
        files = {"mesh.yaml": mesh, "routes.yaml": route_text(_EDITED, timeout_s)}
        began = time.perf_counter()
        found = check(files, cache, None)
        took_s = time.perf_counter() - began
        if found.compiled is None:
            raise RuntimeError(f"the mesh of the benchmark has errors: {found.problems[:3]}")
        return took_s

    cold_s = compiled(30)
    edits_s = [compiled(31 + number) for number in range(effort.edits)]
    return {
        "models": effort.models,
        "cold_s": round(cold_s, 3),
        "edit_p50_ms": round(1e3 * median(edits_s), 2),
        "edit_max_ms": round(1e3 * max(edits_s), 2),
    }


async def _pushing(folder: Path, effort: Effort, say: Say) -> tuple[list[Row], list[Row]]:
    world = World(folder, models=effort.models, endpoints=effort.endpoints, streams=effort.streams)
    say(f"starting a control server, {len(GATEWAYS)} Envoys and {effort.streams} streams")
    async with aiohttp.ClientSession() as http, running(world) as node:
        proxies = effort.streams + len(GATEWAYS) + 1
        await world.all_in_effect(http, proxies)
        say(f"changing endpoints and routes for {effort.churn_s:.0f} s")
        pushed = await Churn(world, node, http).run(effort.churn_s)
        storms = []
        for turn in range(effort.storms):
            say(f"restarting the control server, {turn + 1} of {effort.storms}")
            storms.append(await _storm(world, http, proxies))
    return pushed, storms


class Churn:
    """Changes one after the other."""

    def __init__(self, world: World, node: FakeGpuNode, http: aiohttp.ClientSession) -> None:
        self._world = world
        self._node = node
        self._http = http
        self._took_s: dict[str, list[float]] = {
            "a node goes": [],
            "a node comes": [],
            "a node comes, to traffic": [],
            "a route changes": [],
        }

    async def run(self, seconds: float) -> list[Row]:
        """Change for so long; a row for each kind of change and one for memory."""
        server = self._world.server
        assert server is not None
        began, began_cpu_s = time.monotonic(), cpu_s([server.pid])
        settled_bytes, timeout_s = 0, 31
        while (passed_s := time.monotonic() - began) < seconds:
            if not settled_bytes and passed_s > seconds / 6:
                settled_bytes = rss_bytes(server.pid)
            for _ in range(5):
                await self._go()
                await self._come()
            timeout_s = 31 + (timeout_s - 30) % 3_000
            await self._route(timeout_s)
        used = cpu_s([server.pid]) - began_cpu_s
        rows: list[Row] = [_row(name, found) for name, found in self._took_s.items()]
        rows.append(
            {
                "server_rss_mb": round(rss_bytes(server.pid) / 1e6, 1),
                "growth_mb": round((rss_bytes(server.pid) - settled_bytes) / 1e6, 1),
                "server_cpu_percent": round(100 * used / (time.monotonic() - began)),
                "processors": os.cpu_count(),
            }
        )
        return rows

    async def _go(self) -> None:
        """The node says that it leaves: streams are told that it drains."""
        position = len(self._world.told.lines)
        began = time.monotonic()
        self._node.leave()
        self._took_s["a node goes"].append(await self._last(position, "m-hot-1-http") - began)
        # It drains until its stream ends; then it is gone, which is another change.
        position = len(self._world.told.lines)
        await self._node.disconnect()
        self._node.held.clear()
        await self._last(position, "m-hot-1-http")

    async def _come(self) -> None:
        """The node connects and takes what it is given at once."""
        position = len(self._world.told.lines)
        self._node.acknowledged_at_s = 0.0
        self._node.connect()
        answered = await self._answered()
        at_s = await self._last(position, "m-hot-1-http")
        began = self._node.acknowledged_at_s
        self._took_s["a node comes"].append(at_s - began)
        self._took_s["a node comes, to traffic"].append(answered - began)

    async def _answered(self) -> float:
        """When a request was first answered through every gateway."""
        times = []
        for gateway in GATEWAYS:
            while await self._world.infer(self._http, gateway, "flip") != 200:
                pass
            times.append(time.monotonic())
        return max(times)

    async def _route(self, timeout_s: int) -> None:
        position = len(self._world.told.lines)
        began = time.monotonic()
        url = f"{self._world.admin}/v1/apply"
        async with self._http.post(url, data=route_text(_EDITED, timeout_s)) as answer:
            if not answer.ok:
                raise RuntimeError(await answer.text())
        at_s = await self._last(position, f"models/{_EDITED}", ROUTES)
        self._took_s["a route changes"].append(at_s - began)

    async def _last(self, position: int, name: str, type_url: str = ENDPOINTS) -> float:
        return await self._world.told.last(
            position,
            lambda line: (line.get("type"), line.get("name")) == (type_url, name),
            len(GATEWAYS),
        )


def _row(change: str, took_s: Sequence[float]) -> Row:
    sample = Sample(took_s, sum(took_s))
    return {
        "change": change,
        "times": len(took_s),
        "p50_ms": round(sample.percentile_ms(50), 1),
        "p99_ms": round(sample.percentile_ms(99), 1),
    }


async def _storm(world: World, http: aiohttp.ClientSession, proxies: int) -> Row:
    await world.stop_server()
    listens_s = await world.start_server()
    server = world.server
    assert server is not None
    before = cpu_s([server.pid])
    back_s = await world.all_in_effect(http, proxies)
    return {
        "storm": proxies,
        "all_back_s": round(back_s - listens_s, 2),
        "server_cpu_s": round(cpu_s([server.pid]) - before, 2),
    }


def figures(compiled: Row, pushed: Sequence[Row], storms: Sequence[Row]) -> dict[str, float]:
    """The numbers that the rows come to."""
    *changes, memory = pushed
    p99 = {row["change"]: row["p99_ms"] for row in changes}
    return {
        "eds_p99_ms": max(p99["a node goes"], p99["a node comes"]),
        "eds_traffic_p99_ms": p99["a node comes, to traffic"],
        "route_p99_ms": p99["a route changes"],
        "cold_compile_1000_s": compiled["cold_s"] * 1000 / compiled["models"],
        "edit_ms": compiled["edit_p50_ms"],
        "storm_s": median([row["all_back_s"] for row in storms]),
        "rss_growth_mb": memory["growth_mb"],
    }


def why(figure: str, _: Mapping[str, float], rows: Sequence[Row]) -> str:
    """What was measured that explains a missed goal."""
    memory = next(row for row in rows if "server_rss_mb" in row)
    match figure:
        case "eds_p99_ms" | "route_p99_ms":
            return (
                f"the server used {memory['server_cpu_percent']} % of one of "
                f"{memory['processors']} processors, which streams and Envoys share"
            )
        case "storm_s":
            storm = next(row for row in rows if "storm" in row)
            return f"the server used {storm['server_cpu_s']} s of processor time for it"
    return ""
