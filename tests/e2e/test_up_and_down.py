"""``headrace up`` and ``down``: what they say, that both may be repeated, what they refuse."""

import json
import socket
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace_xds.cli import main as cli
from headrace_xds.cli.console import Exit
from headrace_xds.local import record
from headrace_xds.local.mesh import LocalMesh
from tests.fakes.certificates import pair

MESH = Path(__file__).parents[1] / "bench" / "meshes" / "identity"
TLS = Path(__file__).parents[2] / "mesh-config" / "examples" / "tls.yaml"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def state_dir(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "state"
    if (mesh := LocalMesh.attach(tmp_path / "state")) is not None:
        mesh.stop()


@pytest.fixture
def run(state_dir: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def command(verb: str, *words: str) -> tuple[int, str, str]:
        status = cli.main([verb, "--state-dir", str(state_dir), *words])
        said = capsys.readouterr()
        return status, said.out, said.err

    return command


def test_a_gateway_with_tls_needs_its_secret_and_answers_in_tls(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mesh").mkdir()
    (tmp_path / "mesh" / "tls.yaml").write_text(TLS.read_text())
    up = ("up", "-f", str(tmp_path / "mesh"), "--ports", "auto", "--nodes-per-pool", "1")
    status, _, complaint = run(*up)
    assert status == Exit.NEGATIVE
    assert complaint.count("HR0107") == 3

    gateway, caller = pair("gateway"), pair("caller")
    secrets = tmp_path / "secrets"
    gateway.put(secrets / "gateway")
    caller.put(secrets / "callers", ca=caller.certificate)
    status, data, _ = run(*up, "--secrets", str(secrets))
    assert status == Exit.OK
    found = [line.split()[-1] for line in data.splitlines() if line.startswith("  gateway ")]
    open_to_all, for_partners = found
    trusting = ssl.create_default_context(cadata=gateway.certificate.decode())
    ready = "/v2/models/ranking/ready"
    with urllib.request.urlopen(open_to_all + ready, context=trusting) as answer:
        assert answer.status == 200
    # A caller that only listens hears why; one that speaks may hear no more than the end.
    where = urllib.parse.urlsplit(for_partners)
    with (
        socket.create_connection((where.hostname, where.port), timeout=10) as plain,
        trusting.wrap_socket(plain, server_hostname=where.hostname) as secured,
        pytest.raises(ssl.SSLError, match=r"(?i)certificate.required"),
    ):
        secured.recv(1)


def test_up_and_down_may_be_repeated(run: Run, state_dir: Path) -> None:
    up = ("up", "-f", str(MESH), "--ports", "auto", "--nodes-per-pool", "0")
    status, data, progress = run(*up)
    assert status == Exit.OK
    assert "gateway eu: Envoy ready" in progress
    url = next(line.split()[-1] for line in data.splitlines() if "gateway eu" in line)
    with pytest.raises(urllib.error.HTTPError) as refused, urllib.request.urlopen(f"{url}/v2"):
        """There is no node, so the gateway can only refuse."""
    assert refused.value.headers["server"] == "headrace"
    refused.value.close()
    before = record.read(state_dir).running()
    assert set(before) == {"xds", "gateway/eu"}

    status, again, progress = run(*up)
    assert (status, again) == (Exit.OK, data)
    assert "2 programs run already" in progress
    assert record.read(state_dir).running() == before

    status, _, complaint = run(*up[:-1], "1")
    assert status == Exit.NEGATIVE
    assert "headrace down" in complaint

    assert run("down")[0] == Exit.OK
    assert record.read(state_dir).running() == {}
    assert "nothing runs" in run("down")[2]


def test_up_lists_every_error_of_the_yaml_and_starts_nothing(
    run: Run, state_dir: Path, tmp_path: Path
) -> None:
    config = tmp_path / "bad"
    config.mkdir()
    text = (MESH / "mesh.yaml").read_text()
    (config / "mesh.yaml").write_text(
        text.replace("region: eu,", "regoin: eu,").replace("balance: utilization", "balance: luck")
    )
    status, data, complaint = run("up", "-f", str(config))
    assert (status, data) == (Exit.NEGATIVE, "")
    assert 'did you mean "region"' in complaint
    assert "luck" in complaint
    assert record.read(state_dir).running() == {}


def test_up_names_the_port_that_is_taken(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "mesh"
    config.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        text = (MESH / "mesh.yaml").read_text().replace("port: 0", f"port: {port}")
        (config / "mesh.yaml").write_text(text)
        status, _, complaint = run("up", "-f", str(config))
    assert status == Exit.NEGATIVE
    assert f"127.0.0.1:{port}" in complaint
    assert "--ports auto" in complaint


def test_up_copies_the_example_once(run: Run, state_dir: Path) -> None:
    words = ("--ports", "auto", "--region", "nowhere", "--nodes-per-pool", "0")
    assert "copied the example" in run("up", *words)[2]
    mesh = (state_dir / "mesh" / "mesh.yaml").read_text()
    assert json.loads((state_dir / "plan.json").read_bytes())["gateways"] == []
    assert run("down")[0] == Exit.OK
    (state_dir / "mesh" / "mesh.yaml").write_text(mesh + "# mine\n")
    assert "copied" not in run("up", *words)[2]
    assert "# mine" in (state_dir / "mesh" / "mesh.yaml").read_text()
