"""The ledger on disk: which GPU nodes exist and what each of them holds.

SQLite with full synchronisation: once ``write`` returns, the record survives a crash. A file that
cannot be read is put aside, never deleted, and the server starts as if it knew nothing; then
endpoint sets stay unanswered until nodes return (``headrace.policy.membership``).
"""

import logging
import sqlite3
from pathlib import Path
from typing import Final, Self

import msgspec

from headrace.policy.record import NodeRecord, Record

FORMAT: Final = 1
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS format (version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS node (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS version (name TEXT PRIMARY KEY) WITHOUT ROWID;
"""

log = logging.getLogger(__name__)


class Ledger:
    """One open ledger file. ``record`` is what it held when opened, None where there was none."""

    def __init__(self, connection: sqlite3.Connection, record: Record | None) -> None:
        self._connection = connection
        self.record = record
        self._written = record or Record()

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the ledger, or start an empty one where there is none that can be read."""
        if not path.exists():
            return cls(_create(path), None)
        try:
            connection = sqlite3.connect(path, check_same_thread=False)
            try:
                return cls(connection, _read(connection))
            except BaseException:
                connection.close()
                raise
        except (sqlite3.DatabaseError, msgspec.MsgspecError, ValueError) as error:
            aside = set_aside(path)
            log.error(
                "ledger %s cannot be read (%s): it was moved to %s and the server starts without "
                "it; endpoints stay as proxies know them until GPU nodes return",
                path,
                error,
                aside.name,
            )
            return cls(_create(path), None)

    def write(self, record: Record) -> None:
        """Make the ledger say ``record``; durable when this returns."""
        if record == self._written:
            return
        before = {node.info.name: node for node in self._written.nodes}
        after = {node.info.name: node for node in record.nodes}
        changed = [node for name, node in after.items() if before.get(name) != node]
        with self._connection as transaction:
            transaction.executemany(
                "INSERT OR REPLACE INTO node VALUES (?, ?)",
                [(node.info.name, msgspec.json.encode(node)) for node in changed],
            )
            transaction.executemany(
                "DELETE FROM node WHERE name = ?", [(name,) for name in before.keys() - after]
            )
            gone = set(self._written.versions) - set(record.versions)
            come = set(record.versions) - set(self._written.versions)
            transaction.executemany("DELETE FROM version WHERE name = ?", [(n,) for n in gone])
            transaction.executemany("INSERT INTO version VALUES (?)", [(n,) for n in come])
        self._written = record

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _create(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, check_same_thread=False)
    _synchronise(connection)
    connection.executescript(_SCHEMA)
    with connection as transaction:
        transaction.execute("INSERT INTO format VALUES (?)", (FORMAT,))
    return connection


def _synchronise(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")


def _read(connection: sqlite3.Connection) -> Record:
    (verdict,) = connection.execute("PRAGMA integrity_check").fetchone()
    if verdict != "ok":
        raise ValueError(f"integrity check: {verdict}")
    row = connection.execute("SELECT version FROM format").fetchone()
    if row is None or row[0] != FORMAT:
        raise ValueError(f"format {row and row[0]} is not {FORMAT}")
    _synchronise(connection)
    nodes = connection.execute("SELECT body FROM node ORDER BY name").fetchall()
    versions = connection.execute("SELECT name FROM version ORDER BY name").fetchall()
    return Record(
        nodes=tuple(msgspec.json.decode(body, type=NodeRecord) for (body,) in nodes),
        versions=tuple(name for (name,) in versions),
    )


def set_aside(path: Path) -> Path:
    """Rename a database that cannot be read, with its companions; its name from now on."""
    number = 1
    while (aside := path.with_name(f"{path.name}.unreadable-{number}")).exists():
        number += 1
    path.rename(aside)
    for extension in ("-wal", "-shm"):
        companion = path.with_name(path.name + extension)
        if companion.exists():
            companion.rename(path.with_name(f"{aside.name}{extension}"))
    return aside
