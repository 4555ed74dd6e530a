"""What must answer before a local mesh is up, and what answers now."""

import http.client
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from headrace_xds.local.plan import Plan

_PROBE_S = 2.0
_PROBES_AT_ONCE = 8


class Probe(NamedTuple):
    """One thing that must answer 200: what it is part of, what it is, and where."""

    part: str
    what: str
    address: str
    port: int
    path: str
    secure: bool = False


def probes(plan: Plan) -> tuple[Probe, ...]:
    """Everything of a plan that must answer."""
    return tuple(_probes(plan))


def _probes(plan: Plan) -> Iterator[Probe]:
    yield Probe("control server", "", "127.0.0.1", plan.ports.admin, "/healthz")
    for node in plan.nodes:
        address, port = node.place.address, plan.ports.node_http
        yield Probe(f"node {node.place.name}", "front door", address, port, "/v2/health/live")
        for model, version in node.versions:
            what = f"{model} {version}"
            yield Probe(f"node {node.place.name}", what, address, port, _ready(model, version))
    everywhere = sorted({held for node in plan.nodes for held in node.versions})
    for gateway in plan.gateways:
        part = f"gateway {gateway.name}"
        yield Probe(part, "Envoy", "127.0.0.1", gateway.admin_port, "/ready")
        # Where callers must show a certificate, nobody here has one.
        for model, version in () if gateway.asks_callers else everywhere:
            what, path = f"{model} {version}", _ready(model, version)
            secure = bool(gateway.certificate_file)
            yield Probe(part, what, gateway.address, gateway.port, path, secure)


def _ready(model: str, version: int) -> str:
    return f"/v2/models/{model}/versions/{version}/ready"


def lines(done: set[Probe], *, after_s: float) -> list[str]:
    """What became ready, a line for each part it belongs to."""
    found: dict[str, list[str]] = {}
    for probe in sorted(done):
        found.setdefault(probe.part, []).append(probe.what)
    return [
        f"{part}: {', '.join(filter(None, whats)) or 'up'} ready after {after_s:.1f} s"
        for part, whats in found.items()
    ]


def answering(waiting: set[Probe]) -> set[Probe]:
    """Those that answer now."""
    with ThreadPoolExecutor(max_workers=_PROBES_AT_ONCE) as threads:
        ordered = sorted(waiting)
        return {
            probe for probe, yes in zip(ordered, threads.map(answers, ordered), strict=True) if yes
        }


def answers(probe: Probe) -> bool:
    """Whether one thing answers 200 now."""
    connection = _connection(probe)
    try:
        connection.request("GET", probe.path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _connection(probe: Probe) -> http.client.HTTPConnection:
    """Whose certificate it is does not matter: the question is whether somebody answers."""
    if not probe.secure:
        return http.client.HTTPConnection(probe.address, probe.port, timeout=_PROBE_S)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(probe.address, probe.port, timeout=_PROBE_S, context=context)
