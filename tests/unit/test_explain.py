"""``headrace explain``: every field of every kind has words of its own, and can be found."""

import json
from typing import Any

import pytest

from headrace.config import schema, values
from headrace.config.explain import Explained, UnknownFieldError, every_field, explain
from headrace_xds.cli import main as cli
from headrace_xds.cli.console import Exit

VALUES: tuple[Any, ...] = (
    values.Name, values.Wait, values.Duration, values.Size, values.Address,
    values.Host, values.Header, values.VersionNumber,
)  # fmt: skip
SHARED = {meta.description for kind in VALUES for meta in kind.__metadata__}
"""Words about a type of values, which do not say what one field is for."""
ALL = [field for kind in schema.KINDS for field in every_field(kind)]


def place(field: Explained) -> str:
    return f"{field.kind}.{field.path}"


@pytest.mark.parametrize("field", ALL, ids=place)
def test_every_field_of_every_kind_says_what_it_means(field: Explained) -> None:
    assert field.description.endswith((".", ")"))
    assert field.description not in SHARED
    assert len(field.description) <= 200


@pytest.mark.parametrize("field", ALL, ids=place)
def test_every_field_is_found_by_its_path(field: Explained) -> None:
    assert explain(place(field)) == field


@pytest.mark.parametrize(
    ("path", "kind", "default"),
    [
        ("route.spec.retry.attempts", "int 0..3", 2),
        ("route.spec.timeout", "duration", "30s"),
        ("route.spec.rateLimit.burst", "int 1..10000000", None),
        ("route.spec.match.headers.value", "text of at most 1024 characters", None),
        ("route.spec.split", "0..16 list of Arm", ()),
        ("model.spec.aliases", "map of name to int 1..999999", {}),
        ("Meshes.spec.regions.zones", "1.. list of name", None),
        ("pool.spec.discovery.type", "registered|static", "registered"),
        ("model.spec.idempotent", "true|false", False),
    ],
)
def test_a_type_is_told_in_words_with_its_bounds(path: str, kind: str, default: object) -> None:
    found = explain(path)
    assert (found.type, found.default) == (kind, default)


@pytest.mark.parametrize("field", [field for field in ALL if "text" not in field.type], ids=place)
def test_a_pattern_is_told_in_words(field: Explained) -> None:
    named = {"name", "duration", "size", "host", "header"}
    if named & set(field.type.split()):
        assert field.form


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("rout", 'there is no kind "rout"; did you mean "route"?'),
        ("route.spec.retri", 'Route.spec has no field "retri"; did you mean "retry"?'),
        ("route.retry", 'Route has no field "retry"; did you mean "spec.retry"?'),
        ("route.spec.timeout.ms", 'Route.spec.timeout is duration and has no field "ms"'),
        ("", 'there is no kind ""; expected one of: mesh, model, pool, route, tenant'),
    ],
)
def test_an_unknown_field_is_answered_with_the_nearest(
    what: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UnknownFieldError, match=r"there is no kind|has no field"):
        explain(what)
    assert cli.main(["explain", what]) == Exit.NEGATIVE
    assert said in capsys.readouterr().err


def test_a_field_is_shown_with_those_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "route.spec.retry"]) == Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "KIND: Route   FIELD: spec.retry <Retry>   "
        "Default: {attempts: 2, budgetPercent: 20, perTryTimeout: none}"
    )
    assert "  attempts <int 0..3, default 2>" in lines
    assert "  perTryTimeout <duration, default none>" in lines


def test_recursion_shows_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "model", "--recursive"]) == Exit.OK
    deep = capsys.readouterr().out
    assert cli.main(["explain", "model"]) == Exit.OK
    shallow = capsys.readouterr().out
    assert "maxQueueDelay" in deep
    assert "maxQueueDelay" not in shallow
    assert all(f"{field.name} <" in deep for field in every_field("model"))


def test_programs_get_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "route.spec.retry", "-o", "json"]) == Exit.OK
    shown = json.loads(capsys.readouterr().out)
    assert shown["kind"] == "Route"
    assert shown["fields"][0]["path"] == "spec.retry.attempts"
    assert cli.main(["explain", "route", "-o", "json", "--recursive"]) == Exit.OK
    spec = json.loads(capsys.readouterr().out)["fields"][2]
    assert {field["path"] for field in spec["fields"]} >= {"spec.retry", "spec.split"}


def test_a_code_is_explained_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "hr0105"]) == Exit.OK
    said = capsys.readouterr().out
    assert said.startswith("HR0105: Referenced alias not found\n    Error. Add the alias")
    assert cli.main(["explain", "HR9999"]) == Exit.NEGATIVE
