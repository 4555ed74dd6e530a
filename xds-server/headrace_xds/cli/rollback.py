"""``headrace rollback``: puts the files of a revision in place of those that are there now."""

import argparse

from headrace_xds.cli import author, problems
from headrace_xds.cli.client import Admin, Refusal
from headrace_xds.cli.console import Console, Exit

EXAMPLES = """\
  headrace rollback 7                         headrace revisions shows which there are
  headrace rollback 7 --dry-run               would the checks of today let it pass?
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Flags."""
    parser.add_argument("number", type=int, metavar="REVISION")
    parser.add_argument("--dry-run", action="store_true", help="check only; nothing is changed")
    author.add_note(parser)


def run(flags: argparse.Namespace, console: Console) -> int:
    """Go back; the way back is a revision of its own, so that it can be undone too."""
    query = {**author.query(flags), **({"dryRun": "1"} if flags.dry_run else {})}
    try:
        answer = Admin(flags.server).post(f"/v1/revisions/{flags.number}/rollback", "", **query)
    except Refusal as refusal:
        for refused in refusal.problems:
            console.say(problems.line(console, problems.from_json(refused)))
        raise
    suffix = " (dry run)" if flags.dry_run else f" as generation {answer['generation']}"
    console.data(f"revision {flags.number} is back{suffix}")
    return Exit.OK
