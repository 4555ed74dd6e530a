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
