"""The benchmark of the gateway on canned samples: its names, figures, reasons and JSON."""

import io
import json
import os
import time
from collections.abc import Mapping
from typing import Any

import pytest

from headrace.config import schema
from headrace.config.load import load
from headrace_xds.cli import bench
from headrace_xds.cli import main as cli
from headrace_xds.cli.console import Exit
from tests.bench import gateway, large_mesh
from tests.bench.gateway import Effort, Road
from tests.bench.sample import Sample

ROADS = ("mesh http", "mesh grpc", "triton http", "triton grpc")
EFFORT = Effort(seconds=0.0, repeats=1, models=1)
RUNNING = [
    {"models": 500, "in_effect_s": 1.0, "envoy_mb": 150.0, "control_server_mb": 200.0},
    {"held_versions": 10, "report_streams": 20, "reporter_percent_per_100_streams": 9.0},
    {"held_versions": 100, "report_streams": 200, "reporter_percent_per_100_streams": 5.0},
]
COMPILED = {"load_s": 1.0, "resolve_s": 0.25, "translate_s": 0.5}


def beside(road: str, *, alone: float, loaded: float) -> list[dict[str, Any]]:
    return [
        {"small_bodies": road, "load": "alone", "p50_ms": 1.0, "p95_ms": alone},
        {"small_bodies": road, "load": "beside 10 MB", "p50_ms": 1.0, "p95_ms": loaded},
    ]


BESIDE = [
    *beside("mesh http", alone=2.0, loaded=10.0),
    *beside("triton http", alone=1.0, loaded=3.0),
]


def rows(*, answers: Mapping[str, int], latency_ms: Mapping[str, float]) -> list[dict[str, Any]]:
    """Rows of roads whose clients saw so many answers, each after so long."""

    def road(name: str) -> Road:
        sample = Sample([latency_ms[name] / 1000] * answers[name], took_s=1.0)
        return Road(name, lambda _size, _callers, _seconds: sample, dict)

    return gateway.measured([road(name) for name in ROADS], EFFORT, print)


def profile(road: str, **us: int) -> list[dict[str, Any]]:
    return [
        {"profile": road, "program": name, "cpu_us_per_request": spent}
        for name, spent in us.items()
    ]


def measured(*, mesh_answers: int) -> tuple[dict[str, float], list[dict[str, Any]]]:
    answers = {**dict.fromkeys(ROADS, 100), "mesh http": mesh_answers}
    latency = {**dict.fromkeys(ROADS, 1.0), "mesh http": 4.5}
    of_roads = rows(answers=answers, latency_ms=latency)
    found = gateway.figures(of_roads, BESIDE, [COMPILED, *RUNNING], small_mesh_mb=50.0)
    profiles = profile("mesh http", envoy=300, sidecar=700, stub=100)
    profiles += profile("triton grpc", tritonserver=250, stub=120)
    return found, [*of_roads, *profiles, *BESIDE, COMPILED, *RUNNING]


def test_the_benchmarks_are_named_and_a_part_of_one_is_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert bench.names() == ["config-fuzz", "gateway", "streams", "xds-push"]
    assert cli.main(["bench"]) == Exit.OK
    assert capsys.readouterr().out == "config-fuzz\ngateway\nstreams\nxds-push\n"
    assert cli.main(["bench", "large_mesh"]) == Exit.USAGE
    assert "benchmarks: config-fuzz, gateway" in capsys.readouterr().err


def test_every_case_is_measured_on_every_road() -> None:
    found = rows(answers=dict.fromkeys(ROADS, 3), latency_ms=dict.fromkeys(ROADS, 2.0))
    cases = {(row["road"], row["body"], row["callers"]) for row in found}
    assert len(cases) == len(found) == len(ROADS) * 3 * 2
    assert set(found[0]) > {"rps", "requests_per_cpu_s", "p50_ms", "p99_ms"}
    assert found[0]["p50_ms"] == 2.0


def test_a_figure_compares_two_roads_of_one_run() -> None:
    found, _ = measured(mesh_answers=20)
    assert found["rps_ratio_direct"] == 0.2
    assert found["rps_ratio_direct_grpc"] == 1.0
    assert found["added_p50_ms"] == 3.5
    assert (found["small_p95_beside_10mb"], found["small_p95_beside_10mb_triton"]) == (5.0, 3.0)
    assert found["compile_s"] == 1.75
    assert found["envoy_mb_per_1000_models"] == 200.0
    assert found["report_cpu_percent_per_100_streams"] == 5.0


def test_every_figure_says_what_it_is_and_every_goal_is_of_a_figure() -> None:
    found, _ = measured(mesh_answers=20)
    assert set(found) == set(gateway.MEANINGS)
    assert set(gateway.GOALS) <= set(found)
    quick = gateway.figures(measured(mesh_answers=20)[1], BESIDE, [COMPILED], small_mesh_mb=0)
    assert set(gateway.GOALS) <= set(quick) < set(found)


def test_a_missed_goal_is_explained_by_what_was_measured() -> None:
    report = bench.report(gateway, *measured(mesh_answers=20))
    cost = "a request takes sidecar 700 µs and envoy 300 µs of 1100 µs of processor time"
    assert f"rps_ratio_direct is missed: {cost}; Triton's own gRPC takes 370 µs" in report
    assert f"added_p50_ms is missed: p50 4.50 ms, Triton's own HTTP 1.00 ms; {cost}" in report
    explained = "p95 10.0 ms, alone 2.0 ms; Triton's own HTTP in the same place: 3.0"
    assert f"small_p95_beside_10mb is missed: {explained}" in report


def test_a_reached_goal_needs_no_reason() -> None:
    report = bench.report(gateway, *measured(mesh_answers=50))
    assert "rps_ratio_direct is missed" not in report
    line = next(text for text in report.splitlines() if text.startswith("rps_ratio_direct  "))
    assert line.split()[1:] == ["0.5", ">=", "0.5", "yes"]


def test_the_json_has_figures_goals_rows_and_what_they_were_measured_on() -> None:
    figures, found = measured(mesh_answers=20)
    made = json.loads(json.dumps(bench.result("gateway", gateway, figures, found)))
    assert set(made) == {"bench", "figures", "goals", "rows", "machine", "versions"}
    assert made["bench"] == "gateway"
    assert made["figures"] == figures
    assert len(made["rows"]) == len(found)
    assert set(made["goals"]) == set(gateway.GOALS)
    goal = made["goals"]["rps_ratio_direct"]
    assert (goal["sign"], goal["goal"], goal["reached"]) == (">=", 0.5, False)
    assert "sidecar 700 µs" in goal["why"]
    assert made["machine"]["cpus"] == os.cpu_count()


def test_rows_with_other_columns_make_another_table() -> None:
    _, found = measured(mesh_answers=20)
    assert [len(part) for part in bench.parts(found)] == [24, 5, 4, 1, 1, 2]


def test_a_profile_shows_only_programs_that_take_time() -> None:
    def loop(_size: int, _callers: int, _seconds: float) -> Sample:
        until_s = time.process_time() + 0.05
        while time.process_time() < until_s:
            pass
        return Sample([0.001] * 10, took_s=1.0)

    own = Road("own", loop, lambda: {"busy": [os.getpid()], "absent": []})
    profiles = [row for row in gateway.measured([own], EFFORT, print) if "profile" in row]
    assert [row["program"] for row in profiles] == ["busy"]
    assert profiles[0]["cpu_us_per_request"] >= 1000


def test_many_models_compile_to_two_clusters_and_routes_a_version() -> None:
    said = io.StringIO()
    row = large_mesh.compiled(20, say=lambda text: print(text, file=said))
    assert said.getvalue() == "compiling 20 models\n"
    assert row["models"] == 20
    assert row["resources"] >= 20 * 2 * 2
    assert row["megabytes"] > 0
    times = {"load_s", "resolve_s", "translate_s", "translate_again_s"}
    assert times < set(row)
    assert gateway.figures(measured(mesh_answers=1)[1], BESIDE, [row], small_mesh_mb=0)


def test_large_bodies_have_a_model_of_their_own() -> None:
    folder = large_mesh.HERE / "meshes" / "identity"
    loaded = load([(path.name, path.read_text()) for path in sorted(folder.glob("*.yaml"))])
    assert loaded.ok
    found = [placed.object for placed in loaded.objects]
    models = {model.metadata.name for model in found if isinstance(model, schema.Model)}
    assert models == {gateway.MODEL, gateway.LARGE_MODEL}
