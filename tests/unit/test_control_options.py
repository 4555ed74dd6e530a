"""Command line of the control server."""

from pathlib import Path

import pytest

from headrace_xds.__main__ import parse


def test_a_canary_is_named_by_its_node_id(tmp_path: Path) -> None:
    given = ["--config", str(tmp_path), "--state-dir", str(tmp_path), "--no-gate"]
    assert parse(given).canary == ""
    assert parse([*given, "--canary", "gateway/eu/1"]).canary == "gateway/eu/1"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--canary", "eu"], "--canary eu: not a gateway"),
        (["--secrets", "/nowhere/at/all"], "no such folder"),
    ],
)
def test_wrong_options_end_with_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    with pytest.raises(SystemExit):
        parse(["--config", str(tmp_path), "--state-dir", str(tmp_path), "--no-gate", *arguments])
    assert said in capsys.readouterr().err


def test_a_folder_that_is_gone_is_an_error_unless_something_was_good_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--config", str(tmp_path / "gone"), "--state-dir", str(tmp_path), "--no-gate"]
    with pytest.raises(SystemExit):
        parse(given)
    assert "no such folder" in capsys.readouterr().err
    (tmp_path / "last-good.json").write_text("{}")
    assert parse(given).config == tmp_path / "gone"
