"""``headrace get``: objects of the mesh, and what the control server knows of nodes."""

import argparse
from collections.abc import Sequence
from typing import Any

from headrace.config.schema import KINDS
from headrace_xds.cli import columns
from headrace_xds.cli.client import Admin
from headrace_xds.cli.console import CommandError, Console, Exit
from headrace_xds.cli.output import add_format, name_of, render
from headrace_xds.cli.tables import Column, table

EXAMPLES = """\
  headrace get models                         every model, and is it ready?
  headrace get route/vision -o yaml           one object with its status
  headrace get route vision -o yaml --defaults
  headrace get nodes -o wide                  GPU nodes and their load
  headrace get versions                       model versions on every node
  headrace get endpoints                      where gateways send requests
  headrace get all
"""
PLURALS = {("meshes" if kind == "Mesh" else f"{kind.lower()}s"): kind for kind in KINDS}
OBSERVED = {"nodes": columns.NODES, "versions": columns.VERSIONS, "endpoints": columns.ENDPOINTS}
"""Things that nobody wrote down but that are."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Flags."""
    known = ", ".join([*PLURALS, *OBSERVED, "all"])
    parser.add_argument("what", metavar="KIND[/NAME]", help=f"one of {known}")
    parser.add_argument("name", nargs="?", help="only this one")
    parser.add_argument(
        "--defaults", action="store_true", help="fill in every default, in json and yaml"
    )
    add_format(parser)


def run(flags: argparse.Namespace, console: Console) -> int:
    """Print what was asked for; exit 1 when what is named is not there."""
    what, _, name = flags.what.partition("/")
    name = name or flags.name or ""
    admin = Admin(flags.server)
    if what == "all":
        return _all(flags, console, admin)
    plural = _plural(what)
    if plural in OBSERVED:
        rows = _observed(admin, plural)
        rows = [row for row in rows if not name or _matches(row, name)]
        if name and not rows:
            raise CommandError(f"there is no {plural[:-1]} {name!r}", remedy=_look(plural))
        single = bool(name) and len(rows) == 1
        return _show(flags, console, rows, OBSERVED[plural], single=single, plural=plural)
    query = {"defaults": "1"} if flags.defaults else {}
    kind = PLURALS[plural]
    rows = admin.items(f"/v1/objects/{kind}", **query)
    if name:
        rows = [row for row in rows if row["metadata"]["name"] == name]
        if not rows:
            raise CommandError(f"there is no {kind} {name!r}", remedy=_look(plural))
    return _show(flags, console, rows, columns.OBJECTS[kind], single=bool(name), plural=plural)


def _plural(what: str) -> str:
    word = what.lower()
    for plural in (*PLURALS, *OBSERVED):
        singular = PLURALS[plural].lower() if plural in PLURALS else plural[:-1]
        if word in (plural, singular):
            return plural
    raise CommandError(
        f"there is no kind {what!r}",
        remedy=f"kinds are {', '.join([*PLURALS, *OBSERVED])}, all",
        status=Exit.USAGE,
    )


def _look(plural: str) -> str:
    return f"see headrace get {plural}"


def _observed(admin: Admin, plural: str) -> list[dict[str, Any]]:
    if plural == "endpoints":
        return admin.items("/v1/endpoints")
    nodes = admin.items("/v1/nodes")
    if plural == "nodes":
        return nodes
    return [{"node": node["name"], **held} for node in nodes for held in node["models"]]


def _matches(row: dict[str, Any], name: str) -> bool:
    return name in (row.get("name"), row.get("cluster"), row.get("model"))


def _show(
    flags: argparse.Namespace,
    console: Console,
    rows: Sequence[dict[str, Any]],
    shown: Sequence[Column],
    *,
    single: bool,
    plural: str,
) -> int:
    prefix = "" if plural in PLURALS else f"{plural[:-1]}/"
    if not rows and flags.output in ("table", "wide"):
        console.say(f"no {plural}")
    console.data(render(rows, shown, flags.output, single=single, prefix=prefix))
    return Exit.OK


def _all(flags: argparse.Namespace, console: Console, admin: Admin) -> int:
    query = {"defaults": "1"} if flags.defaults else {}
    rows = admin.items("/v1/objects", **query)
    if flags.output not in ("table", "wide"):
        console.data(render(rows, (), flags.output))
        return Exit.OK
    tables = []
    for kind, shown in columns.OBJECTS.items():
        of_kind = [row for row in rows if row["kind"] == kind]
        named = Column("NAME", name_of)
        tables.append(table([named, *shown[1:]], of_kind, wide=flags.output == "wide"))
    console.data("\n\n".join(part for part in tables if part))
    return Exit.OK
