"""``headrace up``: starts the local mesh, waits until it answers, says how to call it."""

import argparse
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

from headrace_xds.cli import problems
from headrace_xds.cli.console import CommandError, Console, Exit
from headrace_xds.local import configuration, record
from headrace_xds.local.mesh import LocalMesh, MeshNotReadyError
from headrace_xds.local.plan import DEFAULT_STATE_DIR, GatewayPlace
from headrace_xds.local.start import OtherMeshError, PortsTakenError, start

EXAMPLES = """\
  headrace up                                 the example: two regions with two nodes each
  headrace up -f my-mesh/                     your own folder of YAML, reloaded as you edit it
  headrace up --nodes-per-pool 1 --ports auto
  headrace up -f my-mesh/ --secrets secrets/  gateways with tls have their certificates there
  headrace up --foreground                    until Ctrl-C
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Flags."""
    parser.add_argument(
        "-f",
        "--filename",
        type=Path,
        metavar="DIR",
        help="folder of YAML; default: an example, copied into the state folder for you to edit",
    )
    parser.add_argument(
        "--state-dir",
        type=Path,
        default=DEFAULT_STATE_DIR,
        metavar="DIR",
        help="default: .headrace",
    )
    parser.add_argument(
        "--ports",
        choices=("documented", "auto"),
        default="documented",
        help="documented: those of the guide; auto: free ones",
    )
    parser.add_argument("--nodes-per-pool", type=int, default=2, metavar="N", help="default: 2")
    parser.add_argument(
        "--region", action="append", default=[], metavar="NAME", help="only this one; repeatable"
    )
    parser.add_argument(
        "--secrets", type=Path, metavar="DIR", help="folder of secrets, for gateways with tls"
    )
    parser.add_argument("--cache-dir", type=Path, metavar="DIR", help="converted weights")
    parser.add_argument(
        "--foreground", action="store_true", help="stay, and stop everything on Ctrl-C"
    )


def run(flags: argparse.Namespace, console: Console) -> int:
    """Start what is missing, wait, and print where things are."""
    config_dir = _config_dir(flags, console)
    running = record.read(flags.state_dir).running()
    if running:
        console.say(f"{len(running)} programs run already; starting what is missing")
    else:
        console.say(f"starting; logs are in {flags.state_dir / 'logs'}")
    try:
        mesh = start(
            config_dir,
            flags.state_dir,
            ports=flags.ports,
            nodes_per_pool=flags.nodes_per_pool,
            regions=flags.region,
            cache_dir=flags.cache_dir,
            secrets_dir=flags.secrets,
            tied=flags.foreground,
            progress=lambda line: console.say(f"  {line}"),
        )
    except configuration.BadConfigurationError as error:
        for problem in error.problems:
            console.say(problems.line(console, problem))
        raise CommandError(str(error), remedy="correct it and run headrace up again") from None
    except MeshNotReadyError as error:
        remedy = f"see {flags.state_dir / 'logs'}, then headrace down"
        raise CommandError(str(error), remedy=remedy) from None
    except OtherMeshError as error:
        raise CommandError(str(error), remedy="run headrace down first") from None
    except PortsTakenError as error:
        remedy = "stop it (headrace down, if it is a mesh of another folder), or use --ports auto"
        raise CommandError(str(error), remedy=remedy) from None
    except ValueError as error:
        raise CommandError(str(error), status=Exit.USAGE) from None
    console.data(_welcome(mesh))
    if flags.foreground:
        _stay(mesh, console)
    return Exit.OK


def _config_dir(flags: argparse.Namespace, console: Console) -> Path:
    if flags.filename is not None:
        if not flags.filename.is_dir():
            raise CommandError(
                f"{flags.filename} is no folder", remedy="name a folder of YAML", status=Exit.USAGE
            )
        return Path(flags.filename)
    target = Path(flags.state_dir) / "mesh"
    try:
        if configuration.copy_examples(target):
            console.say(f"copied the example mesh to {target}: edit it, it is reloaded")
    except configuration.BadConfigurationError as error:
        raise CommandError(str(error), status=Exit.USAGE) from None
    return target


def _welcome(mesh: LocalMesh) -> str:
    lines = ["The mesh is up.", f"  admin API      {mesh.admin_url}"]
    lines += [f"  gateway {g.name + ' ':<7}{g.url}" for g in mesh.plan.gateways]
    lines += [
        f"  node {n.place.name + ' ':<10}http://{n.place.address}:{mesh.plan.ports.node_http}"
        f"  ({len(n.versions)} model versions)"
        for n in mesh.plan.nodes
    ]
    lines.append(f"  configuration  {mesh.config_dir}")
    models = sorted({model for node in mesh.plan.nodes for model, _ in node.versions})
    if mesh.plan.gateways and models:
        lines += ["", *_try(mesh.plan.gateways[0], models)]
    return "\n".join(lines)


def _try(gateway: GatewayPlace, models: Sequence[str]) -> list[str]:
    """What to try first: a real question where the example's model is there to answer it."""
    trust = f"--cacert {gateway.certificate_file} " if gateway.certificate_file else ""
    if "ranking" in models:
        return ["Rank two documents:", curl(gateway.url, trust)]
    path = f"/v2/models/{models[0]}/ready"
    return [f"Is {models[0]} ready?", f"  curl -i {trust}{gateway.url}{path}"]


def curl(url: str, trust: str = "") -> str:
    """A command line that asks the example's ranking model."""
    return f"""\
  curl -s {trust}{url}/v2/models/ranking/infer -H 'x-api-key: demo' -d '{{"inputs": [
    {{"name": "query", "datatype": "BYTES", "shape": [1, 1], "data": ["how do turbines work"]}},
    {{"name": "documents", "datatype": "BYTES", "shape": [1, 2],
     "data": ["water drives the wheel", "a recipe for bread"]}}]}}'"""


def _stay(mesh: LocalMesh, console: Console) -> None:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    console.say("Ctrl-C stops it")
    stop.wait()
    console.say("stopping")
    mesh.stop()
