"""A whole mesh of real programs around models that only echo, and what tests ask of it."""

import json
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace_xds.local.mesh import LocalMesh
from headrace_xds.local.start import start
from tests.fakes.load import Call

MESHES = Path(__file__).parent / "meshes"
KEY = {"x-api-key": "demo", "content-type": "application/json"}


@contextmanager
def running(name: str, state_dir: Path, *, regions: tuple[str, ...] = ()) -> Iterator[LocalMesh]:
    """The mesh of a folder of ``meshes``, every node and gateway ready."""
    with start(MESHES / name, state_dir, ports="auto", regions=regions) as mesh:
        yield mesh


def infer(model: str, text: str = "hello", *, headers: Mapping[str, str] | None = None) -> Call:
    """An inference request that echoes a text."""
    tensor = {"name": "data", "datatype": "BYTES", "shape": [1, 1], "data": [text]}
    return Call(
        path=f"/v2/models/{model}/infer",
        body=json.dumps({"inputs": [tensor]}).encode(),
        headers={**KEY, **(headers or {})},
    )


def admin(mesh: LocalMesh, path: str) -> Any:
    """JSON of the admin API."""
    with urllib.request.urlopen(mesh.admin_url + path, timeout=5) as reply:
        return json.load(reply)


def envoy_admin(mesh: LocalMesh, gateway: str, path: str) -> str:
    """A page of an Envoy's own admin."""
    port = mesh.gateway(gateway).admin_port
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as reply:
        text: str = reply.read().decode()
        return text


def stats(mesh: LocalMesh, gateway: str, prefix: str) -> dict[str, int]:
    """Counters and gauges of an Envoy whose names begin with a prefix."""
    text = envoy_admin(mesh, gateway, f"/stats?filter=^{prefix}")
    pairs = (line.rsplit(": ", 1) for line in text.splitlines() if ": " in line)
    return {name: int(value) for name, value in pairs if value.isdigit()}


def hosts(mesh: LocalMesh, gateway: str, cluster: str) -> dict[str, str]:
    """Health flags of the hosts of a cluster as an Envoy sees them, by address."""
    page = json.loads(envoy_admin(mesh, gateway, "/clusters?format=json"))
    for status in page.get("cluster_statuses", []):
        if status["name"] == cluster:
            return {_address(host): _health(host) for host in status.get("host_statuses", [])}
    return {}


def healthy(mesh: LocalMesh, gateway: str, cluster: str) -> set[str]:
    """Addresses of the hosts that an Envoy sends to."""
    return {a for a, health in hosts(mesh, gateway, cluster).items() if health == "healthy"}


def edit(mesh: LocalMesh, file: str, old: str, new: str) -> None:
    """Replace a piece of a YAML file, as an editor that writes and renames would."""
    path = mesh.config_dir / file
    text = path.read_text()
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {file}"
    fresh = path.with_name(f".{file}.new")
    fresh.write_text(text.replace(old, new))
    fresh.replace(path)


def in_effect(mesh: LocalMesh) -> bool:
    """Whether every program that was started acknowledged everything that is published to it."""
    started = {program.name for program in mesh.plan.programs}
    proxies = admin(mesh, "/v1/proxies")["items"]
    return all(proxy["inEffect"] for proxy in proxies if proxy["id"] in started)


def _address(host: Mapping[str, Any]) -> str:
    address: str = host["address"]["socket_address"]["address"]
    return address


def _health(host: Mapping[str, Any]) -> str:
    status = host.get("health_status", {})
    bad = [flag for flag in status if flag.startswith("failed") or flag.startswith("pending")]
    if bad:
        return ",".join(sorted(bad))
    name: str = status.get("eds_health_status", "HEALTHY")
    return name.lower()
