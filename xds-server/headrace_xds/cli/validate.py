"""``headrace validate``: every check there is, a real Envoy's included, without a mesh."""

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from headrace.config.problems import Problem
from headrace_xds import envoy_schema
from headrace_xds.binaries import BinaryMissingError, envoy
from headrace_xds.cli import problems, sources
from headrace_xds.cli.console import CommandError, Console, Exit
from headrace_xds.compiler import check
from headrace_xds.control import Compiled
from headrace_xds.gate.envoy import NoVerdict
from headrace_xds.gate.gate import Gate
from headrace_xds.translate.fragments import FragmentCache

EXAMPLES = """\
  headrace validate -f mesh/                  before it is committed, as CI does
  headrace validate -f - < mesh.yaml
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Flags."""
    sources.add_files(parser, required=True)


def run(flags: argparse.Namespace, console: Console) -> int:
    """Print the problems; exit 1 when one of them is an error."""
    checked = check(dict(sources.read(flags.filename)), FragmentCache())
    if checked.failure:
        raise CommandError(checked.failure)
    refused = _refused(checked.compiled) if checked.compiled else ()
    found = [*checked.problems, *refused]
    for problem in found:
        console.data(problems.line(console, problem))
    if problems.worst(found) == "error":
        console.say(problems.summary(found))
        return Exit.NEGATIVE
    assert checked.compiled is not None
    count = sum(
        len(of_type)
        for gateway in checked.compiled.resources.values()
        for of_type in gateway.values()
    )
    console.say(f"valid, {problems.summary(found)}: Envoy takes all {count} resources")
    return Exit.OK


def _refused(compiled: Compiled) -> Sequence[Problem]:
    """What a real Envoy has against it."""
    try:
        binary = envoy()
    except BinaryMissingError as error:
        raise CommandError(str(error), remedy="headrace analyze checks without Envoy") from None
    with tempfile.TemporaryDirectory(prefix="headrace-validate-") as folder:
        gate = Gate(binary, Path(folder), envoy_schema.read(binary))
        try:
            return asyncio.run(gate.judge(compiled.mesh, compiled.resources))
        except NoVerdict as reason:
            raise CommandError(f"Envoy gives no verdict: {reason}", remedy="try again") from None
