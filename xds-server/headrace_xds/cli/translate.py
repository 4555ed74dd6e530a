"""``headrace translate``: what YAML becomes, offline, by the code that the control server runs."""

import argparse
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from headrace import ir
from headrace.config.analyze import analyze, usable
from headrace.config.load import load
from headrace.resolve import resolve
from headrace_xds import envoy_schema
from headrace_xds.binaries import BinaryMissingError, envoy
from headrace_xds.cli import problems, sources
from headrace_xds.cli.console import CommandError, Console, Exit
from headrace_xds.cli.output import add_format, documents
from headrace_xds.translate import resources
from headrace_xds.translate import translate as translate_mesh
from headrace_xds.translate.bootstrap import bootstrap
from headrace_xds.translate.fragments import FragmentCache

EXAMPLES = """\
  headrace translate -f mesh/ --to xds                     everything one gateway gets
  headrace translate -f mesh/ --to xds --type cluster -o json
  headrace translate -f mesh/ --to ir                      what the YAML means
  headrace translate -f mesh/ --to bootstrap --gateway gw-eu > eu.yaml
"""
TYPES = {
    "cluster": resources.CLUSTER,
    "listener": resources.LISTENER,
    "scope": resources.SCOPES,
    "route": resources.ROUTES,
    "extension": resources.EXTENSION,
    "runtime": resources.RUNTIME,
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Flags."""
    sources.add_files(parser, required=True)
    parser.add_argument("--to", required=True, choices=("ir", "xds", "bootstrap"))
    parser.add_argument("--gateway", metavar="NAME", help="default: the first of the mesh")
    parser.add_argument("--type", choices=TYPES, help="of xds, only resources of this type")
    parser.add_argument(
        "--xds-address", default="127.0.0.1:18000", metavar="HOST:PORT", help="of bootstrap"
    )
    parser.add_argument(
        "--admin-address", default="127.0.0.1:19000", metavar="HOST:PORT", help="of bootstrap"
    )
    add_format(parser, "yaml", "json")


def run(flags: argparse.Namespace, console: Console) -> int:
    """Print the translation; exit 1 when the YAML has errors."""
    mesh = _mesh(flags, console)
    match flags.to:
        case "ir":
            values = [msgspec.to_builtins(mesh)]
        case "bootstrap":
            values = [_bootstrap(mesh, flags)]
        case _:
            values = _xds(mesh, flags)
    if flags.output == "json":
        single = flags.to != "xds"
        console.data(json.dumps(values[0] if single else values, indent=2, ensure_ascii=False))
    else:
        console.data(documents(values))
    return Exit.OK


def _mesh(flags: argparse.Namespace, console: Console) -> ir.Mesh:
    loaded = load(sources.read(flags.filename))
    found = analyze(loaded)
    for problem in found:
        console.say(problems.line(console, problem))
    if not usable(found):
        raise CommandError(f"{problems.summary(found)}; nothing was translated")
    return resolve(loaded)


def _gateway(mesh: ir.Mesh, name: str | None) -> tuple[ir.Gateway, ir.Region]:
    found = [(g, region) for region in mesh.regions for g in region.gateways]
    for gateway, region in found:
        if name in (None, gateway.name):
            return gateway, region
    known = ", ".join(gateway.name for gateway, _ in found) or "none"
    raise CommandError(f"there is no gateway {name!r}", remedy=f"gateways: {known}")


def _bootstrap(mesh: ir.Mesh, flags: argparse.Namespace) -> dict[str, Any]:
    gateway, region = _gateway(mesh, flags.gateway)
    return bootstrap(
        gateway,
        zone=region.zones[0],
        xds=_address(flags.xds_address),
        admin=_address(flags.admin_address),
    )


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise CommandError(f"not an address: {text!r}", remedy="HOST:PORT", status=Exit.USAGE)
    return host, int(port)


def _xds(mesh: ir.Mesh, flags: argparse.Namespace) -> list[dict[str, Any]]:
    gateway, _ = _gateway(mesh, flags.gateway)
    try:
        schema = envoy_schema.read(envoy())
    except BinaryMissingError as error:
        raise CommandError(str(error)) from None
    wanted = [TYPES[flags.type]] if flags.type else list(TYPES.values())
    made = translate_mesh(mesh, gateway, FragmentCache())
    return [
        _document(schema, made[type_url][name])
        for type_url in wanted
        for name in sorted(made[type_url])
    ]


def _document(schema: envoy_schema.EnvoySchema, made: resources.Resource) -> dict[str, Any]:
    body: Mapping[str, Any] = schema.to_json(made.type_url, made.body)
    return {
        "type": made.type_url,
        "name": made.name,
        "version": made.version,
        "resource": dict(body),
    }
