"""What many models cost: time to compile, Envoy's memory, processor time of load reports.

Every model has two versions and every version two clusters, one a protocol. Most models have no
node, as in a fleet whose nodes each hold a few; two nodes hold some of them, and each of their
clusters subscribes to load reports of its own. What reports cost is therefore measured at nodes
that hold 10 and 100 versions, and shown both as measured and scaled to 100 streams.
"""

import json
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from headrace import ir
from headrace.config.analyze import analyze
from headrace.config.load import load
from headrace.resolve import resolve
from headrace_xds.local.mesh import LocalMesh
from headrace_xds.local.start import start
from headrace_xds.translate import translate
from headrace_xds.translate.fragments import FragmentCache
from tests.bench.node import idle_node
from tests.bench.processes import measured, rss_bytes

HERE = Path(__file__).parent
POOLS = {"few": 5, "many": 50}
"""Models that the node of a pool holds."""
_READY_S = 180.0
Row = dict[str, Any]
Say = Callable[[str], None]


def compiled(models: int, *, say: Say) -> Row:
    """Times of every step from YAML to Envoy's resources."""
    say(f"compiling {models} models")
    times = [time.perf_counter()]
    loaded = load([("mesh.yaml", yaml_of(models))])
    analyze(loaded)
    times.append(time.perf_counter())
    mesh = resolve(loaded)
    times.append(time.perf_counter())
    cache = FragmentCache()
    made = translate(mesh, _gateway(mesh), cache)
    times.append(time.perf_counter())
    translate(mesh, _gateway(mesh), cache)
    times.append(time.perf_counter())
    spent = [round(after - before, 3) for before, after in pairwise(times)]
    resources = [resource for of_type in made.values() for resource in of_type.values()]
    return {
        "models": models,
        "resources": len(resources),
        "megabytes": round(sum(len(resource.body) for resource in resources) / 1e6, 2),
        "load_s": spent[0],
        "resolve_s": spent[1],
        "translate_s": spent[2],
        "translate_again_s": spent[3],
    }


def run(models: int, folder: Path, *, seconds: float, say: Say) -> list[Row]:
    """Run a control server and an Envoy with so many models, then nodes that hold some of them."""
    config = folder / "large"
    config.mkdir()
    (config / "mesh.yaml").write_text(yaml_of(models))
    say(f"starting a control server and an Envoy with {models} models")
    with start(config, folder / "state", ports="auto", nodes_per_pool=0, wait=False) as mesh:
        began = time.monotonic()
        _until(lambda: _in_effect(mesh), "the gateway has not taken the configuration")
        found = [_envoy_row(mesh, models, time.monotonic() - began)]
        for number, (pool, held) in enumerate(POOLS.items()):
            say(f"load reports of a node that holds {2 * held} versions")
            with _held(mesh, pool, f"127.0.1.{number + 1}", versions=2 * held) as node:
                found.append(_report_row(mesh, node, versions=2 * held, seconds=seconds))
    return found


def yaml_of(models: int) -> str:
    """The mesh of the identity model with other models in its place."""
    head, _, _ = (HERE / "meshes" / "identity" / "mesh.yaml").read_text().rpartition("---\n")
    pools = [
        f"""\
---
apiVersion: headrace.dev/v1alpha1
kind: Pool
metadata: {{name: {name}}}
spec: {{region: eu, zone: eu-1, gpu: {{type: cpu}}}}
"""
        for name in POOLS
    ]
    return "".join([head, *pools, *(_model(number) for number in range(models))])


def _model(number: int) -> str:
    pools = [name for name, held in POOLS.items() if number < held] or ["eu-a"]
    return f"""\
---
apiVersion: headrace.dev/v1alpha1
kind: Model
metadata: {{name: m{number}}}
spec:
  inputs: [{{name: data, datatype: UINT8, shape: [-1]}}]
  outputs: [{{name: data, datatype: UINT8, shape: [-1]}}]
  versions: [{{version: 1, executor: identity}}, {{version: 2, executor: identity}}]
  aliases: {{stable: 1}}
  placement: {{pools: [{", ".join(pools)}]}}
  balance: utilization
  idempotent: true
"""


def _gateway(mesh: ir.Mesh) -> ir.Gateway:
    return mesh.regions[0].gateways[0]


def _envoy_row(mesh: LocalMesh, models: int, in_effect_s: float) -> Row:
    return {
        "models": models,
        "in_effect_s": round(in_effect_s, 1),
        "envoy_mb": round(rss_bytes(_pid(mesh, "gateway/eu")) / 1e6, 1),
        "control_server_mb": round(rss_bytes(_pid(mesh, "xds")) / 1e6, 1),
    }


@contextmanager
def _held(mesh: LocalMesh, pool: str, address: str, *, versions: int) -> Iterator[int]:
    """A node whose clusters all have it as a healthy host; its process id."""
    ports = mesh.plan.ports
    with idle_node(
        pool=pool, address=address, orca_port=ports.node_orca, xds_port=ports.xds
    ) as process:

        def healthy() -> bool:
            if process.poll() is not None:
                raise RuntimeError("the node ended")
            return _healthy(mesh, address) >= 2 * versions

        _until(healthy, "the gateway does not see every cluster of the node as healthy")
        yield process.pid


def _report_row(mesh: LocalMesh, node: int, *, versions: int, seconds: float) -> Row:
    envoy = _pid(mesh, "gateway/eu")
    began = time.monotonic()
    with measured([node]) as reporter, measured([envoy]) as gateway:
        time.sleep(seconds)
    took = time.monotonic() - began
    streams = 2 * versions
    return {
        "held_versions": versions,
        "report_streams": streams,
        "reporter_cpu_percent": round(100 * reporter.cpu_s / took, 1),
        "reporter_percent_per_100_streams": round(1e4 * reporter.cpu_s / took / streams, 2),
        "envoy_cpu_percent": round(100 * gateway.cpu_s / took, 1),
    }


def _pid(mesh: LocalMesh, program: str) -> int:
    pid = mesh.pid(program)
    if pid is None:
        raise RuntimeError(f"{program} does not run:\n{mesh.log(program)}")
    return pid


def _in_effect(mesh: LocalMesh) -> bool:
    try:
        proxies = _get(f"{mesh.admin_url}/v1/proxies")["items"]
    except OSError:
        return False
    return any(proxy["id"] == "gateway/eu" and proxy["inEffect"] for proxy in proxies)


def _healthy(mesh: LocalMesh, address: str) -> int:
    """Clusters of models in which the gateway sees this address as healthy."""
    port = mesh.gateway("eu").admin_port
    found: Sequence[Any] = _get(f"http://127.0.0.1:{port}/clusters?format=json")["cluster_statuses"]
    return sum(
        host["address"]["socket_address"]["address"] == address
        and host["health_status"] == {"eds_health_status": "HEALTHY"}
        for cluster in found
        if cluster["name"].startswith("m-")
        for host in cluster.get("host_statuses", ())
    )


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as reply:
        return json.load(reply)


def _until(true: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + _READY_S
    while not true():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{otherwise} within {_READY_S:.0f} s")
        time.sleep(0.5)
