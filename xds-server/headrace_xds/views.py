"""What the admin API shows, as plain JSON values. Ages instead of times: clocks may differ."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from headrace import names
from headrace.config.problems import CODES, Problem, render
from headrace.config.schema import Object
from headrace.policy.nodes import Holding, Node
from headrace.signals import NodeLoad
from headrace_xds.control import Control
from headrace_xds.eds import Endpoint
from headrace_xds.fleet import Proxy, SyncState, TypeStatus
from headrace_xds.publish.publisher import Active, Publisher
from headrace_xds.publish.quarantine import Refusal
from headrace_xds.revisions import Revision
from headrace_xds.translate.resources import (
    CLUSTER,
    ENDPOINTS,
    EXTENSION,
    LISTENER,
    ROUTES,
    RUNTIME,
    SCOPES,
    SECRET,
    Resource,
)

Json = dict[str, Any]

SHORT_TYPES: Final = {
    CLUSTER: "CDS",
    ENDPOINTS: "EDS",
    LISTENER: "LDS",
    ROUTES: "RDS",
    EXTENSION: "ECDS",
    SCOPES: "SRDS",
    SECRET: "SDS",
    RUNTIME: "RTDS",
    names.ASSIGNMENT_TYPE_URL: "ASSIGNMENTS",
}
"""How people call the types."""


def problem_view(problem: Problem) -> Json:
    """A problem in the configuration; ``text`` is how the command line prints it."""
    row = CODES[problem.code]
    return {
        "code": problem.code,
        "severity": problem.severity.label.lower(),
        "title": row.title,
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
        "path": problem.path,
        "message": problem.message,
        "remedy": row.remedy,
        "object": problem.object,
        "text": render(problem),
    }


def object_view(item: Object, status: Json, *, defaults: bool) -> Json:
    """An object with its status, as it was written or with every default filled in."""
    return {
        "apiVersion": item.api_version,
        "kind": type(item).__name__,
        "metadata": _struct(item.metadata, defaults=defaults),
        "spec": _struct(item.spec, defaults=defaults),
        "status": status,
    }


def node_views(control: Control, rejected: Mapping[str, str], *, now_s: float) -> list[Json]:
    """GPU nodes: registered, static, and those that cannot be placed."""
    nodes = [
        _node_view(node, control.loads.get(name), _node_problem(control, node), now_s=now_s)
        for name, node in sorted(control.membership.nodes.items())
    ]
    return nodes + [
        {"name": names_id, "state": "rejected", "problem": why, "models": [], "load": None}
        for names_id, why in sorted(rejected.items())
    ]


def proxy_views(control: Control, *, now_s: float) -> list[Json]:
    """Every client of the control server, and gateways that should be there and are not."""
    fleet = control.fleet
    present = {proxy.group for proxy in fleet.proxies.values()}
    absent = [
        Proxy(id=group, group=group, build="")
        for group in sorted(fleet.groups() - present)
        if group.startswith(names.gateway_node_id(""))
    ]
    connected = [proxy for _, proxy in sorted(fleet.proxies.items())]
    return [_proxy_view(control, proxy, now_s=now_s) for proxy in [*connected, *absent]]


def quarantine_views(publisher: Publisher) -> list[Json]:
    """Refusals that are held, and what is served where the refused version is wanted."""
    active: dict[Refusal, list[Active]] = {}
    for found in publisher.active():
        active.setdefault(found.refusal, []).append(found)
    return [_refusal_view(refusal, active.get(refusal, [])) for refusal in publisher.quarantine]


def canary_view(publisher: Publisher, *, now_s: float) -> Json | None:
    """The canary proxy and how long the others have waited for it; None where there is none."""
    canary = publisher.canary
    if not canary.node:
        return None
    since_s = canary.waiting_since_s
    return {
        "proxy": canary.node,
        "waitingSeconds": None if since_s is None else _age(since_s, now_s),
    }


def resource_views(served: Mapping[str, Mapping[str, Resource]]) -> list[Json]:
    """Name and version of every resource that a proxy is served."""
    return [
        {"type": SHORT_TYPES[type_url], "name": name, "version": found.version}
        for type_url, resources in served.items()
        for name, found in sorted(resources.items())
    ]


def revision_view(revision: Revision) -> Json:
    """Who made a configuration, when and from where."""
    return {
        "revision": revision.number,
        "at": rfc3339(revision.at_s),
        "author": revision.by.author,
        "origin": revision.by.origin,
        "note": revision.by.note,
    }


def rfc3339(at_s: float) -> str:
    """A time of the wall clock as people and programs read it."""
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds")


def endpoint_views(control: Control) -> list[Json]:
    """Endpoint sets by cluster."""
    return [
        {
            "cluster": cluster,
            "withheld": cluster in control.withheld,
            "endpoints": [_endpoint_view(cluster, endpoint) for endpoint in endpoints],
        }
        for cluster, endpoints in sorted(control.sets.endpoints().items())
    ]


def holdings_of(control: Control, assignment: str) -> Iterator[tuple[str, Holding]]:
    """Every node that was told to hold a model version, and how far it is."""
    for name, node in sorted(control.membership.nodes.items()):
        if (holding := node.holdings.get(assignment)) is not None:
            yield name, holding


def _node_problem(control: Control, node: Node) -> str | None:
    if control.compiled is None:
        return None
    mesh = control.compiled.mesh
    pool = next((pool for pool in mesh.pools if pool.name == node.info.pool), None)
    if pool is None:
        return f"pool {node.info.pool!r} does not exist: the node is not used"
    if node.info.region and (node.info.region, node.info.zone) != (pool.region, pool.zone):
        return (
            f"the node says it is in {node.info.region}/{node.info.zone}, its pool is in "
            f"{pool.region}/{pool.zone}"
        )
    if node.info.orca_port != mesh.orca_port:
        return (
            f"load reports are on port {node.info.orca_port}, gateways look for them on "
            f"{mesh.orca_port}"
        )
    return None


def _node_view(node: Node, load: NodeLoad | None, problem: str | None, *, now_s: float) -> Json:
    info = node.info
    return {
        "name": info.name,
        "pool": info.pool,
        "region": info.region,
        "zone": info.zone,
        "address": info.address,
        "ports": {"http": info.http_port, "grpc": info.grpc_port, "orca": info.orca_port},
        "state": node.state.value,
        "stateAgeSeconds": _age(node.since_s, now_s),
        "problem": problem,
        "models": [
            _holding_view(name, holding, now_s=now_s)
            for name, holding in sorted(node.holdings.items())
        ],
        "load": None if load is None else _load_view(load, now_s=now_s),
    }


def _holding_view(name: str, holding: Holding, *, now_s: float) -> Json:
    model, version = names.parse_assignment(name)
    failed = holding.retry_at_s > now_s and holding.state.value == "failed"
    return {
        "model": model,
        "version": version,
        "state": "retiring" if holding.retires_at_s is not None else holding.state.value,
        "serves": holding.is_endpoint,
        "stateAgeSeconds": _age(holding.since_s, now_s),
        "attempt": holding.attempt,
        "message": holding.message,
        "retryInSeconds": round(holding.retry_at_s - now_s, 3) if failed else None,
        "resourceVersion": holding.version,
    }


def _load_view(load: NodeLoad, *, now_s: float) -> Json:
    return {
        "ageSeconds": _age(load.observed_at_s, now_s),
        "tritonAgeSeconds": round(load.triton_age_s, 3),
        "rps": round(load.rps, 3),
        "versions": [_plain(version) for version in load.versions],
    }


def _proxy_view(control: Control, proxy: Proxy, *, now_s: float) -> Json:
    fleet = control.fleet
    statuses = {url: fleet.status(proxy, url) for url in fleet.types(proxy.group)}
    since_s = min(proxy.streams.values(), default=None)
    return {
        "id": proxy.id,
        "role": proxy.id.partition("/")[0],
        "build": proxy.build,
        "connected": bool(proxy.streams),
        "connectedSeconds": None if since_s is None else _age(since_s, now_s),
        "inEffect": bool(proxy.streams)
        and all(status.state is SyncState.SYNCED for status in statuses.values()),
        "types": [
            _type_view(type_url, status, connected=bool(proxy.streams), now_s=now_s)
            for type_url, status in statuses.items()
        ],
        "heldBack": [
            {"name": name, "missingClusters": sorted(missing)}
            for name, missing in sorted(proxy.held_back.items())
        ],
    }


def _type_view(type_url: str, status: TypeStatus, *, connected: bool, now_s: float) -> Json:
    return {
        "type": SHORT_TYPES.get(type_url, type_url),
        "typeUrl": type_url,
        "state": status.state.value if connected else SyncState.NOT_SENT.value,
        "published": status.published,
        "acknowledged": status.acknowledged,
        "pending": list(status.pending),
        "rejected": [
            {
                "name": name,
                "version": rejection.version,
                "message": rejection.message,
                "ageSeconds": _age(rejection.at_s, now_s),
            }
            for name, rejection in sorted(status.rejected.items())
        ],
        "lastAckAgeSeconds": (
            None if status.last_ack_s is None else _age(status.last_ack_s, now_s)
        ),
    }


def _refusal_view(refusal: Refusal, active: list[Active]) -> Json:
    return {
        "type": SHORT_TYPES.get(refusal.type_url, refusal.type_url),
        "name": refusal.name,
        "version": refusal.version,
        "build": refusal.build,
        "proxy": refusal.proxy,
        "message": refusal.message,
        "at": rfc3339(refusal.at_s),
        "wantedBy": [
            {
                "group": found.group,
                "served": found.served.version if found.served else None,
                "sources": [
                    {"object": f"{s.kind} {s.name}", "file": s.file, "line": s.line}
                    for s in found.wanted.sources
                ],
            }
            for found in active
        ],
    }


def _endpoint_view(cluster: str, endpoint: Endpoint) -> Json:
    info = endpoint.info
    return {
        "node": info.name,
        "pool": info.pool,
        "address": info.address,
        "port": info.http_port if cluster.endswith("-http") else info.grpc_port,
        "weight": endpoint.weight,
        "health": endpoint.health,
    }


def _age(then_s: float, now_s: float) -> float:
    return round(max(now_s - then_s, 0.0), 3)


def _plain(value: object) -> Any:
    return msgspec.to_builtins(value)


def _struct(value: Any, *, defaults: bool) -> Any:
    """Plain value of a part of the mesh language, with or without what equals its default."""
    if isinstance(value, msgspec.Struct):
        return {
            field.encode_name: _struct(getattr(value, field.name), defaults=defaults)
            for field in msgspec.structs.fields(value)
            if defaults or getattr(value, field.name) != _default(field)
        }
    if isinstance(value, tuple | list):
        return [_struct(item, defaults=defaults) for item in value]
    return _plain(value)


def _default(field: msgspec.structs.FieldInfo) -> object:
    if field.default_factory is not msgspec.NODEFAULT:
        factory: Any = field.default_factory
        return factory()
    return field.default


def problem_views(problems: Iterable[Problem]) -> list[Json]:
    """Problems in the order they were found."""
    return [problem_view(problem) for problem in problems]
