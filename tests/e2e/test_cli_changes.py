"""Commands about changes and proxies, against a real control server and a real Envoy."""

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
  model: identity
  split: [{version: 1}]
  timeout: %s
"""

Run = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalMesh]:
    state_dir = tmp_path_factory.mktemp("changes")
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


def route(folder: Path, timeout: str) -> str:
    path = folder / "route.yaml"
    path.write_text(ROUTE % timeout)
    return str(path)


def port_moved(mesh: LocalMesh, folder: Path, port: int) -> str:
    """The mesh object with another port of its gateway."""
    path = folder / "mesh.yaml"
    text = (mesh.config_dir / "mesh.yaml").read_text().split("---\n")[0]
    before, _, after = text.partition("port: ")
    path.write_text(f"{before}port: {port}{after[len(after.split('}')[0]) :]}")
    return str(path)


def test_diff_tells_fields_resources_and_streams(run: Run, tmp_path: Path) -> None:
    given = route(tmp_path, "3s")
    status, data, _ = run("diff", "-f", given)
    assert status == Exit.NEGATIVE
    assert data.splitlines()[0] == "+ route/identity"
    assert "gateway eu: RDS ~models/identity" in data
    assert data.splitlines()[-1] == "streams: none is cut"
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "mesh.yaml").write_text(
        (MESH / "mesh.yaml").read_text() + "---\n" + ROUTE % "3s"
    )
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "mesh.yaml").write_text(
        "# text does not count\n" + (MESH / "mesh.yaml").read_text() + "---\n" + ROUTE % "4s"
    )
    folders = ("diff", "--from", str(tmp_path / "old"), "-f", str(tmp_path / "new"))
    assert "    spec.timeout: 3s -> 4s" in run(*folders)[1].splitlines()
    found = json.loads(run(*folders, "-o", "json")[1])
    assert [change["name"] for change in found["resources"]] == ["models/identity"]
    same = run("diff", "--from", str(tmp_path / "old"), "-f", str(tmp_path / "old"))
    assert same[:2] == (Exit.OK, "nothing changes\n")


def test_diff_of_what_has_errors_says_which(run: Run, tmp_path: Path) -> None:
    given = route(tmp_path, "3s")
    (tmp_path / "route.yaml").write_text((ROUTE % "3s").replace("version: 1", "version: 9"))
    status, _, complaint = run("diff", "-f", given)
    assert status == Exit.NEGATIVE
    assert "nothing can be compared" in complaint
    (tmp_path / "route.yaml").write_text("kind: [")
    assert run("diff", "-f", given)[0] == Exit.NEGATIVE


def test_plan_changes_nothing_and_demands_a_flag_where_streams_are_cut(
    run: Run, tmp_path: Path, mesh: LocalMesh
) -> None:
    given = route(tmp_path, "3s")
    status, data, _ = run("plan", "-f", given)
    assert (status, data.splitlines()[-1]) == (Exit.OK, "streams: none is cut")
    assert run("get", "routes")[1] == ""
    moved = port_moved(mesh, tmp_path, mesh.gateway("eu").port + 1)
    status, data, complaint = run("plan", "-f", moved)
    assert status == Exit.NEGATIVE
    assert "gateway eu: LDS ~gateway" in data
    assert "streams: those under way at eu are cut" in data
    assert "--allow-drain" in complaint
    assert run("plan", "-f", moved, "--allow-drain")[0] == Exit.OK
    (tmp_path / "route.yaml").write_text((ROUTE % "3s").replace("model: identity", "model: none"))
    assert run("plan", "-f", given)[0] == Exit.NEGATIVE


def test_revisions_are_shown_and_a_rollback_is_one_more(run: Run, tmp_path: Path) -> None:
    before = int(json.loads(run("revisions", "-o", "json")[1])[0]["revision"])
    assert run("apply", "-f", route(tmp_path, "5s"), "-m", "slower")[0] == Exit.OK
    head, newest, *_ = run("revisions")[1].splitlines()
    assert head.split() == ["REVISION", "AT", "AUTHOR", "FROM", "NOTE"]
    assert newest.split()[0] == str(before + 1)
    assert newest.endswith("slower")
    shown = run("revisions", str(before + 1))[1]
    assert "+ route/identity" in shown
    assert "+  timeout: 5s" in shown
    dry = run("rollback", str(before), "--dry-run")
    assert dry[:2] == (Exit.OK, f"revision {before} is back (dry run)\n")
    assert "route/identity" in run("get", "routes", "-o", "name")[1]
    assert run("rollback", str(before), "-m", "too slow")[0] == Exit.OK
    assert run("get", "routes")[1] == ""
    assert run("revisions")[1].splitlines()[1].endswith("too slow")
    assert run("rollback", "99999")[0] == Exit.NEGATIVE
    assert run("revisions", "99999")[0] == Exit.NEGATIVE


def test_describe_shows_what_belongs_to_an_object(run: Run) -> None:
    status, data, _ = run("describe", "model/identity")
    assert status == Exit.OK
    for part in ("model/identity, generation", "InEffect", "routes: none", "no node holds"):
        assert part in data
    assert "m-identity-1-http: 0 endpoints" in data
    assert "HR0301" in data
    assert "no node" in run("describe", "pool", "eu-a")[1]
    assert run("describe", "mesh/identity")[0] == Exit.OK
    assert run("describe", "model/none")[0] == Exit.NEGATIVE
    assert run("describe", "model")[0] == Exit.NEGATIVE


def test_wait_ends_when_the_configuration_is_in_effect_or_never_will_be(
    run: Run, mesh: LocalMesh, tmp_path: Path
) -> None:
    assert run("apply", "-f", route(tmp_path, "6s"))[0] == Exit.OK
    status, data, _ = run("wait", "--in-effect")
    assert status == Exit.OK
    generation = int(data.split()[1])
    assert data == f"generation {generation} is in effect\n"
    late = run("wait", "--in-effect", "--generation", str(generation + 1), "--timeout", "0.2s")
    assert late[0] == Exit.NEGATIVE
    assert "of 1 proxies" in late[2]
    broken = mesh.config_dir / "broken.yaml"
    broken.write_text("kind: Nonsense\n")
    try:
        deadline = time.monotonic() + 10
        while run("wait", "--in-effect", "--timeout", "5s")[0] == Exit.OK:
            assert time.monotonic() < deadline
        assert "was refused" in run("wait", "--in-effect", "--timeout", "5s")[2]
    finally:
        broken.unlink()
    while run("wait", "--in-effect", "--timeout", "5s")[0] != Exit.OK:
        assert time.monotonic() < deadline + 20
    with pytest.raises(SystemExit):
        run("wait", "--in-effect", "--timeout", "soon")


def test_validate_asks_a_real_envoy(run: Run, tmp_path: Path) -> None:
    status, data, complaint = run("validate", "-f", str(MESH))
    assert status == Exit.OK
    assert "HR0301" in data
    assert "Envoy takes all" in complaint
    (tmp_path / "mesh.yaml").write_text("kind: Mesh\n")
    assert run("validate", "-f", str(tmp_path))[0] == Exit.NEGATIVE


def test_a_proxy_has_live_what_it_is_served(run: Run, mesh: LocalMesh, tmp_path: Path) -> None:
    assert run("proxy", "status", "--wait", "60s")[0] == Exit.OK
    envoy = f"http://127.0.0.1:{mesh.gateway('eu').admin_port}"
    where = ("gateway/eu", "--envoy", envoy)
    status, data, complaint = run("proxy", "diff", *where)
    assert (status, data) == (Exit.OK, ""), data
    assert "has what it is served" in complaint
    lines = run("proxy", "config", *where)[1].splitlines()
    types = {line.split()[0] for line in lines[1:]}
    assert types == {"CDS", "EDS", "LDS", "RDS", "SRDS", "ECDS"}
    words = ("proxy", "config", *where, "--type", "RDS", "--resource", "models/identity")
    (table,) = json.loads(run(*words, "-o", "json")[1])
    assert table["resource"]["virtual_hosts"]
    assert run("proxy", "config", *where, "--resource", "none")[0] == Exit.NEGATIVE
    # The local mesh says itself where its Envoys are.
    assert run("proxy", "diff", "gateway/eu", "--state-dir", mesh.plan.state_dir)[0] == Exit.OK
    assert run("proxy", "diff", "gateway/eu", "--state-dir", str(tmp_path))[0] == Exit.USAGE
    assert run("proxy", "diff", "gateway/none", "--envoy", envoy)[0] == Exit.NEGATIVE
    assert run("proxy", "config", "gateway/eu", "--envoy", "ftp://x")[0] == Exit.NEGATIVE
    nobody = ("gateway/eu", "--envoy", "http://127.0.0.1:9")
    assert run("proxy", "config", *nobody)[0] == Exit.UNREACHABLE
