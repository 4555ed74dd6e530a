"""What the road through Envoy and the sidecar costs, beside Triton asked directly.

A model that answers with what it is sent, so that Triton itself is cheap. Four roads lead to it:
through the mesh by HTTP and by gRPC, and to Triton's own HTTP and gRPC without a mesh. All run in
one session on one machine, in turns, and what is shown is the median of the turns. Processor time
is that of every process but the client: Envoy, sidecar, control server, supervisor, Triton, stub.

Where bodies of 10 MB are sent beside small ones, they go to a second model, in the mesh and in the
Triton without one: an instance answers one request at a time, so in a model of their own they share
with the small bodies the road and not a queue.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headrace.names import triton_model
from headrace_xds.local.mesh import LocalMesh
from headrace_xds.local.start import start
from tests.bench import direct, large_mesh, reasons
from tests.bench.flow import flowing
from tests.bench.grpc_client import grpc_loop
from tests.bench.http_client import http_loop
from tests.bench.payload import KEY, SIZES, grpc_request, http_request
from tests.bench.processes import by_program, cpu_s, rss_bytes
from tests.bench.sample import Sample, median

GOALS: Mapping[str, tuple[str, float]] = {
    "rps_ratio_direct": (">=", 0.5),
    "added_p50_ms": ("<=", 1.0),
    "small_p95_beside_10mb": ("<=", 2.0),
}
MEANINGS: Mapping[str, str] = {
    "rps_ratio_direct": "requests per processor second by HTTP through the mesh, of those of "
    "Triton's gRPC called directly; bodies of 1 KB, eight callers",
    "rps_ratio_direct_grpc": "the same by gRPC through the mesh",
    "rps_ratio_triton_http": "the same by HTTP through the mesh, of those of Triton's own HTTP",
    "added_p50_ms": "median latency by HTTP through the mesh less that of Triton's own HTTP; "
    "bodies of 1 KB, one caller, so that nothing waits for anything else",
    "added_p50_ms_grpc": "the same by gRPC, less that of Triton's own gRPC",
    "small_p95_beside_10mb": "p95 of bodies of 1 KB by HTTP through the mesh while four callers "
    "send bodies of 10 MB to another model, of the same alone",
    "small_p95_beside_10mb_triton": "the same of Triton's own HTTP",
    "compile_s": "from YAML to Envoy's resources, of so many models as the table says",
    "envoy_mb_per_1000_models": "Envoy's memory with many models less that with two, scaled",
    "report_cpu_percent_per_100_streams": "processor time of load reports at the node that holds "
    "100 versions, 200 streams, scaled to 100; the table has it for 10 versions too",
}
why = reasons.reason
CALLERS: Final = (1, 8)
LARGE_CALLERS: Final = 4
MODEL: Final = "identity"
LARGE_MODEL: Final = "large"

Say = Callable[[str], None]
Row = dict[str, Any]
Loop = Callable[[int, int, float], Sample]
"""Size of the body, callers, seconds."""


@dataclass(frozen=True)
class Road:
    """One way to the model, and the processes that are on it."""

    name: str
    loop: Loop
    programs: Callable[[], Mapping[str, Sequence[int]]]
    """Process ids by what runs."""


@dataclass(frozen=True)
class Effort:
    """How long and how often everything is measured."""

    seconds: float
    repeats: int
    models: int


FULL: Final = Effort(seconds=2.5, repeats=3, models=1000)
QUICK: Final = Effort(seconds=0.4, repeats=1, models=100)


def run(*, quick: bool, say: Say) -> tuple[Mapping[str, float], Sequence[Row]]:
    """Measure everything; figures and rows."""
    effort = QUICK if quick else FULL
    with tempfile.TemporaryDirectory(prefix="hr-b") as name:
        folder = Path(name)
        say("starting a mesh of one node, and a Triton of its own")
        config = Path(__file__).parent / "meshes" / "identity"
        with start(config, folder / "m", nodes_per_pool=1) as mesh:
            memory = rss_bytes(mesh.pids("gateway/eu")[0]) / 1e6
            repository = Path(mesh.plan.runtime_dir) / "eu-1" / "repository"
            (folder / "t").mkdir()
            models = [triton_model(model, 1) for model in (MODEL, LARGE_MODEL)]
            with direct.triton(repository, models, folder / "t") as triton:
                rows = measured(_all_roads(mesh, triton), effort, say)
                gateway = mesh.gateway("eu")
                say(f"bodies of 1 KB beside {LARGE_CALLERS} callers with bodies of 10 MB")
                entry = (gateway.address, gateway.port)
                own = ("127.0.0.1", triton.http_port)
                beside = [
                    *_beside("mesh http", entry, (MODEL, LARGE_MODEL), effort),
                    *_beside("triton http", own, (models[0], models[1]), effort),
                ]
        large = [large_mesh.compiled(effort.models, say=say)]
        if not quick:
            large += large_mesh.run(effort.models, folder, seconds=2 * effort.seconds, say=say)
    return figures(rows, beside, large, small_mesh_mb=memory), [*rows, *beside, *large]


def _all_roads(mesh: LocalMesh, triton: direct.Triton) -> list[Road]:
    gateway = mesh.gateway("eu")
    entry = (gateway.address, gateway.port)
    model = triton_model(MODEL, 1)
    names = [program.name for program in mesh.plan.programs]

    def whole_mesh() -> Mapping[str, list[int]]:
        return by_program({name: mesh.pids(name) for name in names})

    def only_triton() -> Mapping[str, list[int]]:
        return by_program({"tritonserver": triton.pids()})

    return [
        Road("mesh http", _by_http(entry, MODEL), whole_mesh),
        Road("mesh grpc", _by_grpc(entry, MODEL), whole_mesh),
        Road("triton http", _by_http(("127.0.0.1", triton.http_port), model), only_triton),
        Road("triton grpc", _by_grpc(("127.0.0.1", triton.grpc_port), model), only_triton),
    ]


def _by_http(address: tuple[str, int], model: str) -> Loop:
    def loop(size: int, callers: int, seconds: float) -> Sample:
        request = http_request(f"{address[0]}:{address[1]}", model, size)
        return http_loop(address, request, connections=callers, seconds=seconds)

    return loop


def _by_grpc(address: tuple[str, int], model: str) -> Loop:
    def loop(size: int, callers: int, seconds: float) -> Sample:
        return grpc_loop(
            f"{address[0]}:{address[1]}",
            grpc_request(model, size),
            metadata=(("x-api-key", KEY),),
            connections=callers,
            seconds=seconds,
        )

    return loop


def measured(roads: Sequence[Road], effort: Effort, say: Say) -> list[Row]:
    """Every case on every road, then where the processor time of each road goes."""
    cases = [(size, callers) for size in SIZES for callers in CALLERS]
    turns: dict[tuple[str, str, int], list[Row]] = {}
    for road in roads:
        road.loop(1000, 1, 0.5)
    for turn in range(effort.repeats):
        say(f"turn {turn + 1} of {effort.repeats}: {len(cases)} cases on {len(roads)} roads")
        for size, callers in cases:
            for road in roads:
                turns.setdefault((road.name, size, callers), []).append(
                    _measure(road, SIZES[size], callers, effort.seconds)
                )
    rows = [
        {"road": name, "body": size, "callers": callers, **_medians(found)}
        for (name, size, callers), found in turns.items()
    ]
    return rows + [row for road in roads for row in _profile(road, effort)]


def _measure(road: Road, size: int, callers: int, seconds: float) -> Row:
    pids = [pid for found in road.programs().values() for pid in found]
    before = cpu_s(pids)
    sample = road.loop(size, callers, seconds)
    used = cpu_s(pids) - before
    return {
        "rps": sample.rps,
        "requests_per_cpu_s": len(sample.latencies_s) / max(used, 0.01),
        "p50_ms": sample.percentile_ms(50),
        "p99_ms": sample.percentile_ms(99),
    }


def _profile(road: Road, effort: Effort) -> list[Row]:
    """Where the processor time of one road goes; what takes none is left out."""
    programs = road.programs()
    before = {name: cpu_s(pids) for name, pids in programs.items()}
    sample = road.loop(SIZES["1 KB"], CALLERS[-1], 2 * effort.seconds)
    used = {name: cpu_s(pids) - before[name] for name, pids in programs.items()}
    return [
        {"profile": road.name, "program": name, "cpu_us_per_request": round(us)}
        for name, spent_s in sorted(used.items(), key=lambda pair: -pair[1])
        if (us := 1e6 * spent_s / len(sample.latencies_s)) >= 1
    ]


def _beside(
    road: str, address: tuple[str, int], models: tuple[str, str], effort: Effort
) -> list[Row]:
    """Small bodies to the first model, alone and beside large ones to the second."""
    small = _by_http(address, models[0])
    turns: dict[str, list[Row]] = {"alone": [], "beside 10 MB": []}
    for _ in range(effort.repeats):
        turns["alone"].append(_small(small, effort))
        with flowing(address, models[1], size=SIZES["10 MB"], connections=LARGE_CALLERS):
            turns["beside 10 MB"].append(_small(small, effort))
    return [
        {"small_bodies": road, "load": name, **_medians(found)} for name, found in turns.items()
    ]


def _small(loop: Loop, effort: Effort) -> Row:
    sample = loop(SIZES["1 KB"], 1, 2 * effort.seconds)
    return {"p50_ms": sample.percentile_ms(50), "p95_ms": sample.percentile_ms(95)}


def _medians(rows: Sequence[Row]) -> Row:
    return {key: round(median([row[key] for row in rows]), 3) for key in rows[0]}


def figures(
    rows: Sequence[Row], beside: Sequence[Row], large: Sequence[Row], *, small_mesh_mb: float
) -> dict[str, float]:
    """The numbers that the rows come to."""

    def value(road: str, callers: int, key: str) -> float:
        found = next(
            row
            for row in rows
            if (row.get("road"), row.get("body"), row.get("callers")) == (road, "1 KB", callers)
        )
        return float(found[key])

    def per_cpu(road: str) -> float:
        return value(road, CALLERS[-1], "requests_per_cpu_s")

    alone, loaded, triton_alone, triton_loaded = (float(row["p95_ms"]) for row in beside)
    found = {
        "rps_ratio_direct": per_cpu("mesh http") / per_cpu("triton grpc"),
        "rps_ratio_direct_grpc": per_cpu("mesh grpc") / per_cpu("triton grpc"),
        "rps_ratio_triton_http": per_cpu("mesh http") / per_cpu("triton http"),
        "added_p50_ms": value("mesh http", 1, "p50_ms") - value("triton http", 1, "p50_ms"),
        "added_p50_ms_grpc": value("mesh grpc", 1, "p50_ms") - value("triton grpc", 1, "p50_ms"),
        "small_p95_beside_10mb": loaded / alone,
        "small_p95_beside_10mb_triton": triton_loaded / triton_alone,
        **_large_figures(large, small_mesh_mb=small_mesh_mb),
    }
    return {name: round(number, 3) for name, number in found.items()}


def _large_figures(large: Sequence[Row], *, small_mesh_mb: float) -> dict[str, float]:
    compiled, *running = large
    found = {"compile_s": sum(compiled[part] for part in ("load_s", "resolve_s", "translate_s"))}
    if running:
        envoy, *_, reports = running
        extra_mb = envoy["envoy_mb"] - small_mesh_mb
        found["envoy_mb_per_1000_models"] = extra_mb * 1000 / envoy["models"]
        found["report_cpu_percent_per_100_streams"] = reports["reporter_percent_per_100_streams"]
    return found
