"""What an Envoy really has, as its own admin page says it."""

import argparse
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from headrace_xds.cli.console import CommandError, Exit
from headrace_xds.local.mesh import LocalMesh
from headrace_xds.local.plan import DEFAULT_STATE_DIR

TIMEOUT_S = 10.0
_PAGE = "/config_dump?include_eds"


class Live(NamedTuple):
    """A resource that Envoy has; it says no version of endpoints and scopes."""

    type: str
    name: str
    version: str | None
    state: str
    resource: Any


def add_envoy(parser: argparse.ArgumentParser) -> None:
    """Give a command the flags that say where Envoy's admin page is."""
    parser.add_argument("name", help="a gateway's proxy, such as gateway/gw-eu")
    parser.add_argument(
        "--envoy", metavar="URL", help="Envoy's admin page; default: that of the local mesh"
    )
    parser.add_argument("--state-dir", type=Path, default=DEFAULT_STATE_DIR, metavar="DIR")


def read(flags: argparse.Namespace) -> list[Live]:
    """Every resource that came over xDS, by type and name."""
    url = flags.envoy or _local(flags)
    if not url.startswith(("http://", "https://")):
        raise CommandError(f"not a URL: {url!r}", remedy="--envoy http://HOST:PORT")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url.rstrip('/')}{_PAGE}", timeout=TIMEOUT_S) as reply:
            page = json.load(reply)
    except (OSError, ValueError, urllib.error.URLError) as error:
        raise CommandError(
            f"Envoy does not answer: {error}",
            where=url,
            remedy="--envoy names its admin page",
            status=Exit.UNREACHABLE,
        ) from None
    return sorted(parse(page), key=lambda live: (live.type, live.name))


def parse(page: Any) -> Iterator[Live]:
    """Resources in a page of ``/config_dump``."""
    for part in page.get("configs", ()):
        for state in ("active", "warming"):
            for item in part.get(f"dynamic_{state}_clusters", ()):
                yield _live("CDS", item, item["cluster"], state)
        for item in part.get("dynamic_listeners", ()):
            yield from _listener(item)
        for item in part.get("dynamic_route_configs", ()):
            yield _live("RDS", item, item["route_config"], "active")
        for item in part.get("ecds_filters", ()):
            yield _live("ECDS", item, item["ecds_filter"], "active")
        for item in _scopes(part):
            yield _live("SRDS", {}, item, "active")
        for item in part.get("dynamic_endpoint_configs", ()):
            yield _live("EDS", {}, item["endpoint_config"], "active")


def _listener(item: Any) -> Iterator[Live]:
    for state in ("active", "warming", "draining"):
        if (found := item.get(f"{state}_state")) is not None:
            yield _live("LDS", found, found["listener"], state)


def _scopes(part: Any) -> Iterator[Any]:
    for group in part.get("dynamic_scoped_route_configs", ()):
        yield from group.get("scoped_route_configs", ())


def _live(kind: str, around: Any, resource: Any, state: str) -> Live:
    name = str(resource.get("name") or resource.get("cluster_name"))
    return Live(kind, name, around.get("version_info"), state, resource)


def _local(flags: argparse.Namespace) -> str:
    mesh = LocalMesh.attach(flags.state_dir)
    gateways = mesh.plan.gateways if mesh is not None else ()
    for gateway in gateways:
        if flags.name == f"gateway/{gateway.name}":
            return f"http://127.0.0.1:{gateway.admin_port}"
    raise CommandError(
        f"it is not known where the admin page of {flags.name!r} is",
        remedy="name it with --envoy http://HOST:PORT",
        status=Exit.USAGE,
    )
