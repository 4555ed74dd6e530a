"""The history of a configuration."""

from pathlib import Path

import pytest

from headrace import limits
from headrace.config.changes import FieldChange, ObjectChange, changes
from headrace.config.load import load
from headrace.config.schema import Object
from headrace_xds.revisions import Authorship, Revision, Revisions, text_diff
from tests.fakes.control_world import MODEL, ROUTE

BY = Authorship("ana", "api", "why")


def revision(number: int, **files: str) -> Revision:
    return Revision(number=number, at_s=1.5, by=BY, files=files)


def test_revisions_outlive_the_program_and_carry_author_time_and_text(tmp_path: Path) -> None:
    path = tmp_path / "state" / "revisions.db"
    kept = Revisions.open(path)
    kept.add(revision(1, a="one"))
    kept.add(revision(3, a="two", b="three"))
    kept.close()
    again = Revisions.open(path)
    assert [(found.number, found.at_s, found.by) for found in again.newest_first()] == [
        (3, 1.5, BY),
        (1, 1.5, BY),
    ]
    assert again.get(3) == revision(3, a="two", b="three")
    assert again.get(2) is None
    assert again.before(3) == revision(1, a="one")
    assert again.before(1) is None
    again.close()


def test_revisions_authors_and_notes_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REVISIONS", 2)
    monkeypatch.setattr(limits, "AUTHOR_LENGTH", 2)
    monkeypatch.setattr(limits, "NOTE_LENGTH", 1)
    kept = Revisions.open(tmp_path / "revisions.db")
    for number in range(1, 5):
        kept.add(revision(number))
    assert [found.number for found in kept.newest_first()] == [4, 3]
    assert kept.newest_first()[0].by == Authorship("an", "api", "w")
    kept.close()


def test_a_history_that_cannot_be_read_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "revisions.db"
    path.write_text("this is no database, and long enough to be looked at as one" * 50)
    kept = Revisions.open(path)
    kept.add(revision(1))
    assert len(kept.newest_first()) == 1
    assert (tmp_path / "revisions.db.unreadable-1").exists()
    kept.close()


def test_text_is_compared_file_by_file() -> None:
    before, after = {"a": "1\n2\n", "gone": "x"}, {"a": "1\n3\n", "new": "y"}
    assert text_diff(before, after) == (
        "--- a\n+++ a\n@@ -1,2 +1,2 @@\n 1\n-2\n+3\n"
        "--- gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
        "--- /dev/null\n+++ new\n@@ -0,0 +1 @@\n+y\n"
    )
    assert text_diff(before, before) == ""


def objects(text: str) -> list[Object]:
    return [placed.object for placed in load([("a.yaml", text)]).objects]


def test_changes_are_told_by_object_and_field_whatever_the_text_is() -> None:
    before = objects(f"{MODEL}---\n{ROUTE % 1}")
    same = objects(f"# a comment\n{MODEL}---\n{ROUTE % 1}")
    assert changes(before, same) == []
    edited = MODEL.replace("{version: 2, executor: identity}", "{version: 3, executor: identity}")
    after = objects(edited.replace("idempotent: true", "idempotent: false"))
    model, route = changes(before, after)
    assert (model.kind, model.name, model.what) == ("Model", "echo", "changed")
    assert [field.path for field in model.fields] == [
        "spec.idempotent",
        "spec.versions[version=2]",
        "spec.versions[version=3]",
    ]
    assert model.fields[0] == FieldChange("spec.idempotent", True, False)
    assert model.fields[1].after is None
    assert route == ObjectChange("Route", "echo", "removed")
    assert changes([], before)[0] == ObjectChange("Model", "echo", "added")
