"""``headrace VERB NOUN``: finds the command, imports it alone, runs it, reports its errors."""

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import NamedTuple, NoReturn, Protocol, cast

from headrace_xds.cli.client import DEFAULT_SERVER, ENVIRONMENT
from headrace_xds.cli.console import CommandError, Console, Exit

INTERRUPTED = 128 + signal.SIGINT


class Command(Protocol):
    """What the module of a command has."""

    EXAMPLES: str
    """Command lines, one a line: what its help begins with."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's flags."""

    def run(self, flags: argparse.Namespace, console: Console) -> int:
        """Do it; the exit status."""


class Entry(NamedTuple):
    """A command before its module is imported."""

    module: str
    summary: str


COMMANDS = {
    "up": Entry("up", "start the local mesh, or what is missing of it"),
    "down": Entry("down", "stop the local mesh"),
    "apply": Entry("apply", "put YAML into the mesh"),
    "diff": Entry("diff", "compare YAML with the running mesh, or with other YAML"),
    "plan": Entry("plan", "say what apply would do, and whether streams would be cut"),
    "validate": Entry("validate", "run every check on YAML, a real Envoy's included"),
    "describe": Entry("describe", "show an object with everything that has to do with it"),
    "get": Entry("get", "show objects, nodes, endpoints"),
    "analyze": Entry("analyze", "find problems in YAML or in the running mesh"),
    "translate": Entry("translate", "show what YAML becomes: ir, xds or bootstrap"),
    "why": Entry("why", "say where a request goes, and why"),
    "explain": Entry("explain", "say what a kind or a field means"),
    "proxy status": Entry("proxy_status", "show which proxy has which configuration in effect"),
    "wait": Entry("wait", "wait until a configuration is in effect"),
    "proxy config": Entry("proxy_config", "show what an Envoy has live"),
    "proxy diff": Entry("proxy_diff", "compare what a proxy is served with what it has live"),
    "revisions": Entry("revisions", "show who changed the mesh, when and how"),
    "rollback": Entry("rollback", "go back to a revision"),
    "quarantine": Entry("quarantine", "show what proxies refused and nobody is sent again"),
    "canary release": Entry("canary", "let gateways go on without the canary proxy"),
    "bench": Entry("bench", "run a benchmark of this repository"),
    "version": Entry("version", "show the versions of the parts"),
}
GROUPS = {
    "proxy": "look at gateways and sidecars",
    "canary": "the gateway that takes a configuration before others",
}
"""First words of commands that have two."""

EXAMPLES = """\
  headrace up                                 start everything on this machine
  headrace get models                         what exists, and is it ready?
  headrace apply -f route.yaml --dry-run=server
  headrace proxy status                       is my change in effect?
"""


class Parser(argparse.ArgumentParser):
    """Help that begins with examples; wrong usage is status 2."""

    examples = ""

    def format_help(self) -> str:
        """Examples, then usage and flags."""
        examples = f"Examples:\n{self.examples.rstrip()}\n\n" if self.examples else ""
        return examples + super().format_help()

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where to read on, without the whole usage."""
        print(f"error: {message}\n  see {self.prog} --help", file=sys.stderr)
        raise SystemExit(Exit.USAGE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given:
        build(None, None).print_help(sys.stderr)
        return Exit.USAGE
    name = chosen(given)
    command = _load(name) if name else None
    flags = build(name, command).parse_args(given)
    console = Console(color=not flags.no_color)
    if command is None:
        raise AssertionError("argparse lets no command line without a command pass")
    try:
        return int(command.run(flags, console))
    except CommandError as error:
        console.say(f"error: {error}")
        return int(error.status)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader, such as head, has seen enough. What is still buffered must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(Exit.OK)


def chosen(arguments: Sequence[str]) -> str | None:
    """The command that a command line names; None when it names none."""
    words = [word for word in arguments if not word.startswith("-")]
    for position, word in enumerate(words):
        if word in COMMANDS:
            return word
        if word in GROUPS:
            pair = " ".join(words[position : position + 2])
            return pair if pair in COMMANDS else None
    return None


def build(name: str | None, command: Command | None) -> Parser:
    """Parser of every command, with the flags of the one that was named."""
    parser = Parser(prog="headrace", description="Run and look at a mesh of GPU inference servers.")
    parser.examples = EXAMPLES
    _add_global(parser, default=None)
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    groups = {
        word: verbs.add_parser(word, help=summary).add_subparsers(metavar="COMMAND", required=True)
        for word, summary in GROUPS.items()
    }
    for full, entry in COMMANDS.items():
        group, _, last = full.rpartition(" ")
        sub = (groups[group] if group else verbs).add_parser(last, help=entry.summary)
        # Global flags may stand after the command too; there they must not undo what stood before.
        _add_global(sub, default=argparse.SUPPRESS)
        if command is not None and full == name:
            sub.examples = command.EXAMPLES
            sub.description = f"{entry.summary[0].upper()}{entry.summary[1:]}."
            command.configure(sub)
    return parser


def _add_global(parser: argparse.ArgumentParser, *, default: object) -> None:
    parser.add_argument(
        "--server",
        metavar="URL",
        default=default,
        help=f"admin API of the control server; default: ${ENVIRONMENT} or {DEFAULT_SERVER}",
    )
    parser.add_argument(
        "--no-color",
        action="store_true",
        default=False if default is None else default,
        help="plain text; so does NO_COLOR",
    )


def _load(name: str) -> Command:
    return cast(Command, importlib.import_module(f"headrace_xds.cli.{COMMANDS[name].module}"))


if __name__ == "__main__":
    sys.exit(main())
