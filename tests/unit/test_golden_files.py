"""Golden files: a difference fails, an orphan fails, an update leaves exactly what is expected."""

from pathlib import Path

import pytest

from tests.fakes.golden_files import Golden

EXPECTED = {"a.txt": "one\n"}


def test_a_difference_is_shown_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("two\n")
    with pytest.raises(AssertionError, match=r"-two\n\+one"):
        Golden(update=False).check(tmp_path, "*.txt", EXPECTED)


def test_an_orphan_fails_and_an_update_deletes_it(tmp_path: Path) -> None:
    for name in ("a.txt", "orphan.txt", "other.md"):
        (tmp_path / name).write_text("old\n")
    with pytest.raises(AssertionError, match="--golden=update"):
        Golden(update=False).check(tmp_path, "*.txt", EXPECTED)
    Golden(update=True).check(tmp_path, "*.txt", EXPECTED)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "other.md"]
    Golden(update=False).check(tmp_path, "*.txt", EXPECTED)


def test_an_update_makes_the_folder(tmp_path: Path) -> None:
    Golden(update=True).check(tmp_path / "out", "*.txt", EXPECTED)
    assert (tmp_path / "out" / "a.txt").read_text() == "one\n"
