"""The command line against a real control server and a real Envoy; no GPU node is needed."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace_xds.cli import main as cli
from headrace_xds.cli.console import Exit
from headrace_xds.local.mesh import LocalMesh
from headrace_xds.local.readiness import answers, probes
from headrace_xds.local.start import start

MESH = Path(__file__).parents[1] / "bench" / "meshes" / "identity"
ROUTE = """\
apiVersion: headrace.dev/v1alpha1
kind: Route
metadata: {name: identity}
spec:
  model: %s
  split: [{version: 1}]
"""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalMesh]:
    state_dir = tmp_path_factory.mktemp("cli")
    with start(MESH, state_dir, ports="auto", nodes_per_pool=0, wait=False) as started:
        deadline = time.monotonic() + 60
        waiting = [p for p in probes(started.plan) if p.part == "control server"]
        while not all(map(answers, waiting)):
            assert time.monotonic() < deadline, started.log("xds")
            time.sleep(0.1)
        yield started


@pytest.fixture
def run(
    mesh: LocalMesh, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Runs a command line; its status, data and complaints."""
    monkeypatch.setenv("HEADRACE_SERVER", mesh.admin_url)

    def command(*words: str) -> tuple[int, str, str]:
        status = cli.main(words)
        said = capsys.readouterr()
        return status, said.out, said.err

    return command


def test_get_shows_objects_in_every_format(run: Run) -> None:
    assert run("get", "models")[1].splitlines()[1].split()[:2] == ["identity", "1"]
    assert run("get", "models", "-o", "name")[1] == "model/identity\nmodel/large\n"
    assert json.loads(run("get", "pool/eu-a", "-o", "json")[1])["spec"]["region"] == "eu"
    assert "orcaPort" in run("get", "mesh", "identity", "-o", "yaml", "--defaults")[1]
    assert run("get", "all")[1].count("identity") == 2


def test_get_of_what_is_not_there_is_a_no(run: Run) -> None:
    status, data, complaint = run("get", "model", "nonsense")
    assert (status, data) == (Exit.NEGATIVE, "")
    assert "nonsense" in complaint
    assert run("get", "nodes") == (Exit.OK, "", "no nodes\n")


def test_apply_says_what_became_of_each_object(run: Run, tmp_path: Path, mesh: LocalMesh) -> None:
    route = tmp_path / "route.yaml"
    route.write_text(ROUTE % "identity")
    dry = run("apply", "-f", str(route), "--dry-run=server")
    assert dry[:2] == (Exit.OK, "route/identity created (server dry run)\n")
    assert run("get", "routes")[1] == ""
    assert run("apply", "-f", str(route))[1] == "route/identity created\n"
    assert run("apply", "-f", str(route))[1] == "route/identity unchanged\n"
    route.write_text(ROUTE.replace("version: 1", "alias: stable") % "identity")
    assert run("apply", "-f", str(route), "-o", "name")[1] == "route/identity\n"
    assert run("get", "route/identity")[1].splitlines()[1].split()[2] == "stable:100"
    assert (mesh.config_dir / "route-identity.yaml").exists()


def test_apply_of_a_reference_to_nothing_changes_nothing(run: Run, tmp_path: Path) -> None:
    route = tmp_path / "route.yaml"
    route.write_text(ROUTE % "identiti")
    status, data, complaint = run("apply", "-f", str(route))
    assert (status, data) == (Exit.NEGATIVE, "")
    assert "HR0102" in complaint
    assert "identity" in complaint
    assert run("analyze")[0] == Exit.OK


def test_apply_of_bad_yaml_asks_no_server(run: Run, tmp_path: Path) -> None:
    route = tmp_path / "route.yaml"
    route.write_text((ROUTE % "identity").replace("split", "splitt"))
    status, data, complaint = run("apply", "-f", str(route), "--server", "http://127.0.0.1:9")
    assert (status, data) == (Exit.NEGATIVE, "")
    assert 'did you mean "split"' in complaint


def test_proxy_status_waits_until_everything_is_in_effect(run: Run) -> None:
    status, data, _ = run("proxy", "status", "--wait", "60s")
    assert status == Exit.OK
    assert data.splitlines()[1].split()[:3] == ["gateway/eu", "in", "effect"]
    row = json.loads(run("proxy", "status", "gateway/eu", "-o", "json")[1])
    assert {found["type"] for found in row["types"]} >= {"CDS", "LDS", "RDS", "EDS"}


def test_proxy_status_is_a_no_while_the_newest_edit_is_refused(run: Run, mesh: LocalMesh) -> None:
    broken = mesh.config_dir / "broken.yaml"
    broken.write_text("kind: Nonsense\n")
    try:
        status, data, complaint = run("proxy", "status", "--wait", "1.5s")
    finally:
        broken.unlink()
    assert status == Exit.NEGATIVE
    assert data.splitlines()[1].split()[:3] == ["gateway/eu", "in", "effect"]
    assert "was refused" in complaint
    assert run("proxy", "status", "--wait", "30s")[0] == Exit.OK


def test_proxy_status_of_an_absent_proxy_is_a_no(run: Run) -> None:
    assert run("proxy", "status", "gateway/nowhere")[0] == Exit.NEGATIVE


def test_analyze_fails_on_what_it_is_told_to_fail_on(run: Run) -> None:
    status, data, _ = run("analyze", "-f", str(MESH))
    assert status == Exit.OK
    assert "HR0301" in data
    assert run("analyze", "-f", str(MESH), "--fail-on", "info")[0] == Exit.NEGATIVE
    assert run("analyze", "-f", str(MESH), "--fail-on", "info", "--suppress", "HR0301")[1] == ""


@pytest.mark.parametrize("to", ["ir", "xds", "bootstrap"])
def test_translate_is_the_same_every_time(run: Run, to: str) -> None:
    first = run("translate", "-f", str(MESH), "--to", to)
    assert first[0] == Exit.OK
    assert first == run("translate", "-f", str(MESH), "--to", to)
    as_json = json.loads(run("translate", "-f", str(MESH), "--to", to, "-o", "json")[1])
    assert as_json


def test_translate_shows_one_type_when_asked(run: Run) -> None:
    words = ("translate", "-f", str(MESH), "--to", "xds", "--type", "cluster", "-o", "json")
    names = {resource["name"] for resource in json.loads(run(*words)[1])}
    assert {"m-identity-1-http", "m-identity-1-grpc"} <= names


def test_why_follows_a_request_through_what_is_in_effect(run: Run) -> None:
    call = ("why", "-o", "json", "--grpc", "ModelInfer", "--model", "identity")
    said = json.loads(run(*call, "-H", "x-api-key: demo")[1])
    assert (said["model"], said["version"], said["cluster"]) == ("identity", 1, "m-identity-1-grpc")
    # No node has registered, and nothing is known to be there that is not.
    assert said["priorities"] == []
    place = next(step["place"] for step in said["steps"] if step["topic"] == "model")
    shown = run("get", "model/identity", "-o", "yaml")[1].splitlines()
    name, _, line = place.rpartition(":")
    assert (name, shown[int(line) - 1]) == ("model/identity", "apiVersion: headrace.dev/v1alpha1")
    refused = run(*call)
    assert (refused[0], json.loads(refused[1])["refusal"]) == (Exit.NEGATIVE, "invalid_api_key")
