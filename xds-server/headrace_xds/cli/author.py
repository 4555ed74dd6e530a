"""Who sits at the terminal, and what they say about an edit: it goes into the revision."""

import argparse
import getpass


def add_note(parser: argparse.ArgumentParser) -> None:
    """Give a command the flag ``-m``."""
    parser.add_argument(
        "-m", "--note", default="", metavar="TEXT", help="why; headrace revisions shows it"
    )


def query(flags: argparse.Namespace) -> dict[str, str]:
    """Author and note for the admin API."""
    try:
        author = getpass.getuser()
    except (KeyError, OSError):
        author = ""
    return {"author": author, "note": flags.note}
