"""``headrace describe``: one object with everything that has to do with it."""

import argparse
from collections.abc import Iterator
from typing import Any

from headrace import names
from headrace_xds.cli import problems
from headrace_xds.cli.client import Admin
from headrace_xds.cli.console import CommandError, Console, Exit
from headrace_xds.cli.get import PLURALS
from headrace_xds.cli.output import documents
from headrace_xds.cli.tables import Column, table

EXAMPLES = """\
  headrace describe model/vision              conditions, routes, nodes, endpoints, problems
  headrace describe route vision
"""
_CONDITIONS = (
    Column("CONDITION", lambda row: row["type"]),
    Column("STATUS", lambda row: row["status"]),
    Column("REASON", lambda row: row["reason"]),
    Column("SINCE", lambda row: row["lastTransitionTime"]),
    Column("MESSAGE", lambda row: row["message"]),
)
_HOLDINGS = (
    Column("NODE", lambda row: row["node"]),
    Column("VERSION", lambda row: row["version"]),
    Column("STATE", lambda row: row["state"]),
    Column("SERVES", lambda row: row["serves"]),
    Column("MESSAGE", lambda row: row["message"]),
)
_NODES = (
    Column("NODE", lambda row: row["name"]),
    Column("STATE", lambda row: row["state"]),
    Column("MODELS", lambda row: len(row["models"])),
    Column("PROBLEM", lambda row: row["problem"]),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Flags."""
    parser.add_argument("what", metavar="KIND/NAME", help=f"kinds: {', '.join(PLURALS)}")
    parser.add_argument("name", nargs="?")


def run(flags: argparse.Namespace, console: Console) -> int:
    """Print it; exit 1 when there is no such object."""
    given, _, name = flags.what.partition("/")
    name = name or flags.name or ""
    kind = next((k for plural, k in PLURALS.items() if given in (plural, k.lower(), k)), None)
    if kind is None or not name:
        raise CommandError(f"not an object: {flags.what!r}", remedy="such as model/vision")
    admin = Admin(flags.server)
    found = [r for r in admin.items(f"/v1/objects/{kind}") if r["metadata"]["name"] == name]
    if not found:
        raise CommandError(f"there is no {kind} {name!r}", remedy=f"see headrace get {given}")
    sections = [section for section in _sections(admin, found[0]) if section]
    sections += _problems(admin, console, f"{kind} {name}")
    console.data("\n\n".join(sections))
    return Exit.OK


def _sections(admin: Admin, row: dict[str, Any]) -> Iterator[str]:
    name, kind = row["metadata"]["name"], row["kind"]
    yield f"{kind.lower()}/{name}, generation {row['status']['observedGeneration']}"
    yield table(_CONDITIONS, row["status"]["conditions"])
    yield documents([row["spec"]]).rstrip()
    match kind:
        case "Model":
            yield _routes(admin, name)
            yield _held(admin, name)
            yield _endpoints(admin, row)
        case "Route":
            yield f"model: headrace describe model/{row['spec']['model']}"
        case "Pool":
            nodes = [node for node in admin.items("/v1/nodes") if node.get("pool") == name]
            yield table(_NODES, nodes) if nodes else "no node"


def _routes(admin: Admin, model: str) -> str:
    found = [r for r in admin.items("/v1/objects/Route") if r["spec"]["model"] == model]
    named = ", ".join(f"route/{row['metadata']['name']}" for row in found)
    return f"routes: {named}" if named else "routes: none, the stable version gets all requests"


def _held(admin: Admin, model: str) -> str:
    rows = [
        {"node": node["name"], **held}
        for node in admin.items("/v1/nodes")
        for held in node["models"]
        if held["model"] == model
    ]
    return table(_HOLDINGS, rows) if rows else "no node holds a version of it"


def _endpoints(admin: Admin, row: dict[str, Any]) -> str:
    clusters = {
        names.cluster(row["metadata"]["name"], version["version"], protocol)
        for version in row["spec"]["versions"]
        for protocol in ("http", "grpc")
    }
    found = [item for item in admin.items("/v1/endpoints") if item["cluster"] in clusters]
    return "\n".join(
        f"{item['cluster']}: {len(item['endpoints'])} endpoints"
        + (", withheld" if item["withheld"] else "")
        for item in found
    )


def _problems(admin: Admin, console: Console, owner: str) -> list[str]:
    found = [problems.from_json(row) for row in admin.items("/v1/problems")]
    lines = [problems.line(console, problem) for problem in found if problem.object == owner]
    return ["\n".join(lines)] if lines else []
