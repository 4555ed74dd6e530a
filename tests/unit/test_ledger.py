"""The ledger on disk."""

import logging
from pathlib import Path

import pytest

from headrace.policy.record import HeldRecord, NodeInfo, NodeRecord, Record
from headrace_xds.ledger import Ledger


def node(name: str, *held: HeldRecord) -> NodeRecord:
    info = NodeInfo(
        name=name,
        pool="a",
        region="eu",
        zone="z",
        address="127.0.1.1",
        http_port=1,
        grpc_port=2,
        orca_port=3,
    )
    return NodeRecord(info=info, held=held)


FULL = Record(
    nodes=(node("n1", HeldRecord("vision@1", "abc", 2)), node("n2")),
    versions=("ranking@1", "vision@1"),
)


def reopen(path: Path) -> Record | None:
    ledger = Ledger.open(path)
    try:
        return ledger.record
    finally:
        ledger.close()


def write(path: Path, *records: Record) -> None:
    ledger = Ledger.open(path)
    try:
        for record in records:
            ledger.write(record)
    finally:
        ledger.close()


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    write(tmp_path / "ledger.db", FULL)
    assert reopen(tmp_path / "ledger.db") == FULL


def test_a_write_replaces_everything(tmp_path: Path) -> None:
    after = Record(nodes=(node("n2", HeldRecord("x@1", "v", 0)), node("n3")), versions=("x@1",))
    write(tmp_path / "ledger.db", FULL, after)
    assert reopen(tmp_path / "ledger.db") == after


def test_a_write_is_durable_without_closing(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger.db")
    ledger.write(FULL)
    assert reopen(tmp_path / "ledger.db") == FULL
    ledger.close()


def test_a_ledger_that_was_never_there_is_not_an_empty_one(tmp_path: Path) -> None:
    assert reopen(tmp_path / "state" / "ledger.db") is None
    assert reopen(tmp_path / "state" / "ledger.db") == Record()


@pytest.mark.parametrize("damage", ["garbage", "truncated", "overwritten middle", "empty"])
def test_a_damaged_ledger_is_put_aside_with_a_loud_word(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "ledger.db"
    many = Record(nodes=tuple(node(f"n{number:04}") for number in range(500)))
    write(path, many)
    data = path.read_bytes()
    path.write_bytes(
        {
            "garbage": b"not a database" * 100,
            "truncated": data[: len(data) // 2],
            "overwritten middle": data[:4096] + b"\xff" * 8192 + data[12288:],
            "empty": b"",
        }[damage]
    )
    with caplog.at_level(logging.ERROR):
        assert reopen(path) is None
    assert (tmp_path / "ledger.db.unreadable-1").exists()
    assert "ledger.db.unreadable-1" in caplog.text
    write(path, FULL)
    assert reopen(path) == FULL


def test_a_second_damaged_ledger_does_not_overwrite_the_first(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    for _ in range(2):
        path.write_bytes(b"garbage" * 100)
        reopen(path)
    assert (tmp_path / "ledger.db.unreadable-2").exists()
