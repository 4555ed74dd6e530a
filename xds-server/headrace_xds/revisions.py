"""Every configuration that came into effect: who made it, when, and its text, to go back to.

SQLite with full synchronisation, the newest ``limits.REVISIONS`` of them. A file that cannot be
read is put aside and the history begins anew; what is in effect does not depend on it.
"""

import difflib
import logging
import sqlite3
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

import msgspec

from headrace import limits
from headrace_xds.ledger import set_aside

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS revision (
    number INTEGER PRIMARY KEY, at REAL NOT NULL, author TEXT NOT NULL, origin TEXT NOT NULL,
    note TEXT NOT NULL, files BLOB NOT NULL);
"""
_CONTEXT_LINES: Final = 3

log = logging.getLogger(__name__)


class Authorship(msgspec.Struct, frozen=True):
    """Who edits, from where (``folder`` or ``api``), and what they say about it."""

    author: str
    origin: str
    note: str = ""


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration; its number is the generation that it came into effect as."""

    number: int
    at_s: float
    by: Authorship
    files: Mapping[str, str] = {}


class Revisions:
    """The history of one control server. Calls block: not for the event loop."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the history, or begin one."""
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return cls(_connect(path))
        except sqlite3.DatabaseError as error:
            aside = set_aside(path)
            log.error("%s cannot be read (%s): it is %s now", path, error, aside.name)
            return cls(_connect(path))

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def add(self, revision: Revision) -> None:
        """Keep a revision, durably; the oldest goes when there are too many."""
        by = revision.by
        body = zlib.compress(msgspec.json.encode(revision.files))
        with self._connection as transaction:
            transaction.execute(
                "INSERT OR REPLACE INTO revision VALUES (?, ?, ?, ?, ?, ?)",
                (
                    revision.number,
                    revision.at_s,
                    by.author[: limits.AUTHOR_LENGTH],
                    by.origin,
                    by.note[: limits.NOTE_LENGTH],
                    body,
                ),
            )
            transaction.execute(
                "DELETE FROM revision WHERE number <= ?", (revision.number - limits.REVISIONS,)
            )

    def newest_first(self) -> list[Revision]:
        """Every revision, without its files."""
        rows = self._connection.execute(
            "SELECT number, at, author, origin, note FROM revision ORDER BY number DESC"
        )
        return [
            Revision(number=number, at_s=at_s, by=Authorship(author, origin, note))
            for number, at_s, author, origin, note in rows
        ]

    def get(self, number: int) -> Revision | None:
        """One revision with its files."""
        row = self._connection.execute(
            "SELECT at, author, origin, note, files FROM revision WHERE number = ?", (number,)
        ).fetchone()
        if row is None:
            return None
        at_s, author, origin, note, body = row
        return Revision(
            number=number,
            at_s=at_s,
            by=Authorship(author, origin, note),
            files=msgspec.json.decode(zlib.decompress(body), type=dict[str, str]),
        )

    def before(self, number: int) -> Revision | None:
        """The revision that came before one, as far as it is still kept."""
        row = self._connection.execute(
            "SELECT max(number) FROM revision WHERE number < ?", (number,)
        ).fetchone()
        return self.get(row[0]) if row and row[0] is not None else None


def text_diff(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Unified diff of the files, in the order of their names."""
    parts: list[str] = []
    for name in sorted(before.keys() | after.keys()):
        parts += difflib.unified_diff(
            before.get(name, "").splitlines(keepends=True),
            after.get(name, "").splitlines(keepends=True),
            fromfile=name if name in before else "/dev/null",
            tofile=name if name in after else "/dev/null",
            n=_CONTEXT_LINES,
        )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in parts)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(_SCHEMA)
        connection.execute("SELECT count(*) FROM revision").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection
