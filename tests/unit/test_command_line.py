"""The command line: what it prints where, its formats, its exit statuses."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.config.problems import Problem
from headrace_xds.cli import main as cli
from headrace_xds.cli import output, problems, tables
from headrace_xds.cli.client import Admin
from headrace_xds.cli.console import CommandError, Console, Exit
from headrace_xds.cli.tables import Column

NAME = Column("NAME", lambda row: row["name"])
SIZE = Column("SIZE", lambda row: row["size"])
PLACE = Column("PLACE", lambda row: row.get("place"), wide=True)
ROWS: list[dict[str, Any]] = [
    {"name": "a", "size": 3.14159},
    {"name": "longer", "size": None, "place": "here"},
]


def test_a_table_has_heads_two_spaces_and_no_trailing_blanks() -> None:
    assert tables.table([NAME, SIZE], ROWS) == "NAME    SIZE\na       3.1\nlonger  -"


def test_wide_shows_columns_that_a_table_hides() -> None:
    lines = tables.table([NAME, SIZE, PLACE], ROWS, wide=True).splitlines()
    assert lines[0].split() == ["NAME", "SIZE", "PLACE"]
    assert lines[2].split() == ["longer", "-", "here"]


def test_a_cell_is_one_line_and_never_empty() -> None:
    assert tables.text("two\nlines") == "two lines"
    assert tables.text(["x", ""]) == "x,-"
    assert tables.text(()) == "-"
    assert tables.text(False) == "no"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, "-"), (0.4, "0s"), (119.0, "119s"), (120.0, "2m"), (7300.0, "2h"), (200_000.0, "2d")],
)
def test_an_age_is_shown_in_one_unit(seconds: float | None, shown: str) -> None:
    assert tables.age(seconds) == shown


def test_formats_for_programs_hold_whole_values() -> None:
    assert json.loads(output.render(ROWS, [NAME], "json")) == ROWS
    assert json.loads(output.render(ROWS[:1], [NAME], "json", single=True)) == ROWS[0]
    assert output.render(ROWS, [NAME], "yaml").count("---") == 1
    assert output.render(ROWS, [NAME], "name", prefix="node/") == "node/a\nnode/longer"


def test_an_object_is_named_by_kind_and_name() -> None:
    row = {"kind": "Route", "metadata": {"name": "chat"}}
    assert output.render([row], [], "name") == "route/chat"


def test_a_problem_names_its_code_object_place_and_path() -> None:
    problem = Problem(
        code="HR0101",
        file="mesh.yaml",
        line=14,
        column=11,
        path="$.spec.pool",
        message='Referenced pool not found: "a10"',
        object="Route chat",
    )
    assert problems.line(Console(io.StringIO()), problem) == (
        'Error   [HR0101] (Route chat, mesh.yaml:14:11) Referenced pool not found: "a10"'
    )
    assert problems.from_json(problems.to_json(problem)) == problem
    assert problems.summary([problem, problem]) == "2 errors"
    assert problems.worst([problem]) == "error"
    assert problems.worst([]) is None


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["get", "models"], "get"),
        (["--no-color", "proxy", "status"], "proxy status"),
        (["proxy"], None),
        (["--help"], None),
        ([], None),
    ],
)
def test_the_command_is_found_among_flags(words: list[str], command: str | None) -> None:
    assert cli.chosen(words) == command


@pytest.mark.parametrize(
    "words", [["nonsense"], ["get"], ["analyze", "--nonsense"], ["proxy"], ["proxy", "nonsense"]]
)
def test_wrong_usage_is_status_2_and_says_where_to_read(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(words)
    assert exit_.value.code == Exit.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert "--help" in said.err


def test_no_command_is_answered_with_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == Exit.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("Examples:")


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_of_every_command_begins_with_examples(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main([*name.split(), "--help"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out.startswith(f"Examples:\n  headrace {name}")


@pytest.mark.parametrize("words", [["get", "models"], ["proxy", "status"], ["analyze"]])
def test_a_server_that_does_not_answer_is_status_3(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    # Port 9 is discard: nothing listens there, and nobody may take it without privileges.
    assert cli.main([*words, "--server", "http://127.0.0.1:9"]) == Exit.UNREACHABLE
    said = capsys.readouterr()
    assert said.out == ""
    assert "does not answer" in said.err
    assert "headrace up" in said.err


def test_a_server_is_named_by_flag_then_by_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_SERVER", "10.0.0.1:80")
    assert Admin().server == "http://10.0.0.1:80"
    assert Admin("http://[::1]:1/").server == "http://[::1]:1"
    with pytest.raises(CommandError):
        Admin("file:///etc/passwd")


def test_a_missing_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["analyze", "-f", str(tmp_path / "none.yaml")]) == Exit.USAGE
    assert "none.yaml" in capsys.readouterr().err


def test_a_folder_without_yaml_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["analyze", "-f", str(tmp_path)]) == Exit.USAGE
    assert str(tmp_path) in capsys.readouterr().err


def test_an_unknown_kind_is_answered_with_those_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["get", "gizmos"]) == Exit.USAGE
    assert "models" in capsys.readouterr().err


def test_down_without_a_mesh_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["down", "--state-dir", str(tmp_path)]) == Exit.OK
    assert "nothing runs" in capsys.readouterr().err


def test_no_escapes_reach_a_pipe_or_a_person_who_wants_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert Console(Terminal()).paint("x", "31") == "\x1b[31mx\x1b[0m"
    assert Console(io.StringIO()).paint("x", "31") == "x"
    assert Console(Terminal(), color=False).paint("x", "31") == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Console(Terminal()).paint("x", "31") == "x"


def test_help_imports_nothing_heavy() -> None:
    heavy = {"grpc", "aiohttp", "torch", "numpy", "yaml", "betterproto2", "google.protobuf"}
    code = (
        "import sys; from headrace_xds.cli.main import build; build(None, None).format_help();"
        f"print(sorted({heavy!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m headrace_xds.cli.main version | true",
        shell=True,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
