"""``headrace why``: where a request goes and why, from files or from the running mesh."""

import argparse
from typing import NamedTuple

import msgspec

from headrace import ir
from headrace.config.analyze import analyze, usable
from headrace.config.load import Loaded, load
from headrace.resolve import resolve
from headrace.why.ask import why
from headrace.why.nodes import Endpoints
from headrace.why.places import Places
from headrace_xds.cli import in_effect, problems, sources, why_request, why_tree
from headrace_xds.cli.client import Admin
from headrace_xds.cli.console import CommandError, Console, Exit
from headrace_xds.cli.output import add_format, render

EXAMPLES = """\
  headrace why -H 'x-api-key: demo' -d '{}' http://127.0.0.1:10000/v2/models/vision/infer
  headrace why -f mesh/ -H 'x-api-key: demo' -H 'x-user: u1' -d @body.json /v2/models/vision/infer
  headrace why -H 'x-api-key: demo' --grpc ModelInfer --model vision
  headrace why -f mesh/ --gateway gw-us -o json /v2/health/live
"""


class Known(NamedTuple):
    """A mesh, where its parts are written, and its endpoints where they are known."""

    loaded: Loaded
    mesh: ir.Mesh
    endpoints: Endpoints | None


def configure(parser: argparse.ArgumentParser) -> None:
    """Flags."""
    sources.add_files(parser, required=False)
    why_request.add_flags(parser)
    parser.add_argument(
        "--gateway", metavar="NAME", help="default: the one that the URL names, else the first"
    )
    add_format(parser, "tree", "json", "yaml")


def run(flags: argparse.Namespace, console: Console) -> int:
    """Print the explanation; exit 1 when the request is refused."""
    asked = why_request.read(flags)
    known = _offline(flags, console) if flags.filename else _online(flags)
    gateway = _gateway(known.mesh, flags.gateway, asked.authority)
    request = asked.request_at(gateway)
    said = why(
        request,
        known.mesh,
        gateway=gateway,
        places=Places(known.loaded),
        endpoints=known.endpoints,
    )
    if flags.output == "tree":
        console.data(why_tree.render(request, said, console))
    else:
        console.data(render([msgspec.to_builtins(said)], (), flags.output, single=True))
    return Exit.NEGATIVE if said.refusal or said.node_refusal else Exit.OK


def _offline(flags: argparse.Namespace, console: Console) -> Known:
    loaded = load(sources.read(flags.filename))
    found = analyze(loaded)
    if not usable(found):
        for problem in found:
            console.say(problems.line(console, problem))
        raise CommandError(f"{problems.summary(found)}; no request could be followed")
    return Known(loaded, resolve(loaded), None)


def _online(flags: argparse.Namespace) -> Known:
    admin = Admin(flags.server)
    loaded = in_effect.objects(admin)
    found = analyze(loaded)
    if not usable(found):
        raise CommandError(
            f"this release cannot read what is in effect: {problems.summary(found)}",
            where=admin.server,
            remedy="use the headrace of the same release, or pass files with -f",
        )
    return Known(loaded, resolve(loaded), in_effect.endpoints(admin))


def _gateway(mesh: ir.Mesh, name: str | None, authority: str) -> ir.Gateway | None:
    """The gateway of a name, else of an address, else the first; None where there is none."""
    found = [gateway for region in mesh.regions for gateway in region.gateways]
    if name is not None:
        for gateway in found:
            if gateway.name == name:
                return gateway
        known = ", ".join(gateway.name for gateway in found) or "none"
        raise CommandError(f"there is no gateway {name!r}", remedy=f"gateways: {known}")
    at = [gateway for gateway in found if why_request.authority_of(gateway) == authority]
    return next(iter([*at, *found]), None)
