"""The loader: positions, scalars, hints, broken documents beside good ones, and every limit."""

import time

import pytest
from msgspec import inspect

from headrace import limits
from headrace.config import schema
from headrace.config.forms import FORMS
from headrace.config.load import load
from headrace.config.problems import near, render, render_analysis, shown
from headrace.config.yaml import documents, scalar
from tests.fakes.small_mesh import CLEAN, KEY, changed, problems_of, shown_by

TENANT = "apiVersion: headrace.dev/v1alpha1\nkind: Tenant\nmetadata: {name: %s}\nspec: %s\n"
HEADER = "  match: {headers: [{name: x-a, value: %s}]}"
LABEL = TENANT % ("demo", "{}")


def codes(text: str) -> list[str]:
    return [problem.code for problem in load([("a.yaml", text)]).problems]


def test_every_problem_is_reported_at_once_with_what_was_meant() -> None:
    text = CLEAN.replace("timeout: 10s", "timeot: 10s\n  timeout: 5")
    text = changed("{type: t4}", "{tpye: t4}", changed("weight: 90", "wieght: 90", text))
    assert [render(problem) for problem in load([("mesh.yaml", text)]).problems] == [
        'mesh.yaml:13:37: $.spec.gpu: missing field "type"',
        'mesh.yaml:13:38: $.spec.gpu.tpye: unknown field "tpye"; did you mean "type"?',
        'mesh.yaml:31:27: $.spec.split[0].wieght: unknown field "wieght"; did you mean "weight"?',
        'mesh.yaml:32:3: $.spec.timeot: unknown field "timeot"; did you mean "timeout"?',
        "mesh.yaml:33:12: $.spec.timeout: expected text, got 5; write it like 250ms, 30s or 1m30s",
    ]


def test_a_problem_is_printed_as_analyzers_do() -> None:
    (problem,) = problems_of(changed("model: echo", "model: ecko"))
    assert render_analysis(problem) == (
        'Error   [HR0102] (Route echo, a.yaml:30:10) referenced model not found: "ecko";'
        ' did you mean "echo"?'
    )


def test_a_duplicate_key_names_the_first_line() -> None:
    (problem,) = problems_of(changed("timeout: 10s", "timeout: 10s\n  timeout: 9s"))
    assert problem.message == 'duplicate key "timeout", first on line 32'


def test_a_broken_document_hides_neither_objects_nor_problems_of_others() -> None:
    text = "\n---\n".join([TENANT % ("a", "{}"), "x: [", TENANT % ("b", "{teir: x}"), "y: }\n"])
    loaded = load([("a.yaml", text)])
    assert [placed.name for placed in loaded.objects] == ["a"]
    found = [(problem.code, shown_by(problem, text)) for problem in loaded.problems]
    assert found[1:] == [("HR0602", "teir: x}"), ("HR0601", "}")]
    assert found[0][0] == "HR0601"


@pytest.mark.parametrize(
    "text", ["", "---\n---\n", "# nothing\n", "---\n# one\n---\n# two\n", "~", "\ufeff"]
)
def test_empty_documents_are_left_out(text: str) -> None:
    expected = ["HR0604"] if text == "~" else []
    assert codes(text) == expected
    assert codes(text + ("\n" if text else "") + "---\n" + LABEL) == expected


def test_separators_with_comments_content_and_directives_are_separators() -> None:
    inline = "{apiVersion: headrace.dev/v1alpha1, kind: Tenant, metadata: {name: c}, spec: {}}\n"
    first = "%YAML 1.2\n--- # first\n" + TENANT % ("a", "{}")
    text = first + "...\n%YAML 1.2\n---\t\n" + TENANT % ("b", "{}") + "--- " + inline
    loaded = load([("a.yaml", text)])
    assert loaded.problems == ()
    assert [(placed.name, placed.line) for placed in loaded.objects] == [
        ("a", 3),
        ("b", 10),
        ("c", 14),
    ]


def test_windows_line_breaks_move_no_position() -> None:
    text = changed("timeout: 10s", "timeot: 10s").replace("\n", "\r\n")
    (problem,) = load([("a.yaml", text)]).problems
    assert (problem.line, problem.column) == (32, 3)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"), ("no", "no"), ("y", "y"), ("true", True), ("False", False),
        ("12", 12), ("-3", -3), ("014", "014"), ("0o14", "0o14"), ("12:30:45", "12:30:45"),
        ("1_000", "1_000"), ("1.5", 1.5), ("1e3", 1000.0), (".5", 0.5), ("1.2.3", "1.2.3"),
        ("2026-12-01", "2026-12-01"), ("~", None), ("null", None), ("", None), ("=", "="),
        ("'12'", "12"), ('"true"', "true"), ("1" * 40, "1" * 40),
    ],
)  # fmt: skip
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    roots, problems = documents("", f"x: {text}")
    assert problems == []
    found = scalar(roots[0].value[0][1])
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("old", "new", "code", "message"),
    [
        ("timeout: 10s", "timeout: 10", "HR0604", "expected text, got 10; write it like 250ms"),
        ("timeout: 10s", "timeout:", "HR0604", "expected text, got nothing"),
        ("timeout: 10s", "timeout: [1]", "HR0604", "expected a single value, got a list"),
        (
            "timeout: 10s",
            "timeout: 10 s",
            "HR0606",
            '"10 s" is not allowed; write it like 250ms, 30s or 1m30s',
        ),
        ("timeout: 10s", "timeout: 0s", "HR0605", "shorter than 1 ms"),
        ("timeout: 10s", "timeout: 99h", "HR0605", "longer than 86400 s"),
        ("timeout: 10s", f"timeout: {'9' * 400}h", "HR0605", "longer than 86400 s"),
        ("weight: 90", "weight: ninety", "HR0604", 'a whole number, got the text "ninety"'),
        ("weight: 90", "weight: true", "HR0604", "expected a whole number, got true"),
        ("weight: 90", "weight: 9.5", "HR0604", "expected a whole number, got 9.5"),
        ("weight: 90", "weight: 10001", "HR0605", "10001 is outside 0..10000"),
        ("{type: t4}", "{type: t4, memory: 2048TiB}", "HR0605", "larger than 1024 TiB"),
        ("name: demo", 'name: "demo\\n"', "HR0606", '"demo\\n" is not allowed; use lower-case'),
        ("name: demo", f"name: {'a' * 64}", "HR0606", "is not allowed"),
        (KEY, KEY + "0", "HR0606", "is not allowed"),
        ("name: gw-eu", "name: gw-eu, address: local", "HR0606", "not an IP address"),
        ("name: gw-eu", "name: gw-eu, address: 'fe80::1%a'", "HR0606", "it has a scope"),
        ("name: gw-eu", "name: gw-eu, port: 65536", "HR0605", "65536 is outside 0..65535"),
        ("aliases: {stable: 1,", "aliases: {Stable: 1,", "HR0606", '"Stable" is not allowed'),
        ("aliases: {stable: 1,", "aliases: {1: 1,", "HR0604", "expected text as a key, got 1"),
        ("zones: [eu-1]", "zones: []", "HR0605", "needs at least 1 items, has 0"),
        ("zones: [eu-1]", "zones: eu-1", "HR0604", 'expected a list, got the text "eu-1"'),
        ("  timeout: 10s", "  balance: 1", "HR0602", 'unknown field "balance"'),
        (
            "  timeout: 10s",
            "  match: {hosts: ['*']}",
            "HR0606",
            '"*" is not allowed; write it like example.com',
        ),
        ("  timeout: 10s", "  match: {hosts: ['a*.b']}", "HR0606", "is not allowed"),
        ("  timeout: 10s", HEADER % '" a"', "HR0606", '" a" is not allowed; write it quoted'),
        ("  timeout: 10s", HEADER % '"a\\nb"', "HR0606", r'"a\nb" is not allowed'),
        ("  timeout: 10s", HEADER % "1", "HR0604", "expected text, got 1; write it quoted"),
        ("spec: {apiKeys", "spec: {tier: gold, apiKeys", "HR0606", '"gold" is not allowed'),
        ("kind: Route", "kind: [Route]", "HR0604", "expected text, got a list"),
        ("kind: Route\n", "", "HR0607", 'missing field "kind"; expected one of: Mesh'),
        ("kind: Route", "kind: route", "HR0608", 'did you mean "Route"?'),
        ("metadata: {name: demo}", "metadata: demo", "HR0604", "a mapping (Metadata)"),
    ],
)
def test_a_wrong_value_is_named(old: str, new: str, code: str, message: str) -> None:
    (problem, *_) = load([("a.yaml", changed(old, new))]).problems
    assert problem.code == code
    assert message in problem.message


def test_null_leaves_an_optional_field_at_its_default() -> None:
    assert codes(changed("timeout: 10s", "timeout: 10s\n  mirror:\n  rateLimit: ~")) == []


def test_what_is_quoted_from_a_file_cannot_reach_the_terminal() -> None:
    (problem,) = load([("a.yaml", TENANT % ("a", '{"\\e[31m\\n": 1}'))]).problems
    assert problem.path == r'$.spec["\x1b[31m\n"]'
    assert problem.message.isprintable()
    assert shown("x" * 100) == "x" * 60 + "…"


def test_a_hint_names_what_is_near_or_what_there_is() -> None:
    assert near("modle", ["model", "mesh"]) == '; did you mean "model"?'
    assert near("zzz", ["b", "a"]) == "; expected one of: a, b"
    assert near("zzz", [f"x{n}" for n in range(21)]) == ""
    assert near("m" * 100_000, ["m"]) == "; expected one of: m"
    assert near("modle-517", [f"model-{n}" for n in range(1_000)]) == '; did you mean "model-517"?'


def test_an_object_defined_in_two_files_names_the_first() -> None:
    loaded = load([("a.yaml", LABEL), ("b.yaml", LABEL)])
    assert [placed.file for placed in loaded.objects] == ["a.yaml"]
    assert [render(problem) for problem in loaded.problems] == [
        'b.yaml:3:18: $.metadata.name: Tenant "demo" is defined in a.yaml:1 too'
    ]


def test_one_mistake_is_not_reported_twice() -> None:
    assert [p.code for p in problems_of(changed("kind: Mesh", "kind: Mash"))] == ["HR0608"]


# --- limits -----------------------------------------------------------------------------------


def test_config_file_bytes_bound_the_text_whatever_its_script() -> None:
    half = limits.CONFIG_FILE_BYTES // 2
    assert codes("#" + "é" * half) == ["HR0610"]
    assert codes("#" + "e" * (limits.CONFIG_FILE_BYTES - 1)) == []


def test_config_depth_is_allowed_and_one_more_is_not() -> None:
    def nested(depth: int) -> str:
        return "[" * depth + "]" * depth

    assert codes(nested(limits.CONFIG_DEPTH)) == ["HR0604"]
    assert codes(nested(limits.CONFIG_DEPTH + 1)) == ["HR0611"]
    assert codes("[" * 1_000_000) == ["HR0611"]
    assert codes("a:\n" + "".join(" " * n + "a:\n" for n in range(1, 2_000))) == ["HR0611"]


def test_config_alias_nodes_are_a_budget_of_the_file() -> None:
    document = "x: &x 1\ny: [" + ", ".join(["*x"] * (limits.CONFIG_ALIAS_NODES // 2)) + "]\n"
    assert set(codes("---\n".join([document] * 2))) == {"HR0607"}
    assert set(codes("---\n".join([document] * 3))) == {"HR0607", "HR0612"}


def test_config_problems_are_listed_and_the_rest_is_counted() -> None:
    text = TENANT % ("a", "{" + ", ".join(f"x{n}: 1" for n in range(5_000)) + "}")
    found = load([("a.yaml", text)]).problems
    assert len(found) == limits.CONFIG_PROBLEMS + 1
    assert found[-1].code == "HR0616"
    assert found[-1].message == f"{5_000 - limits.CONFIG_PROBLEMS} more problems are not listed"


def test_config_problems_of_many_broken_documents_end_the_reading() -> None:
    found = load([("a.yaml", "---\n]\n" * 10_000)]).problems
    assert len(found) == limits.CONFIG_PROBLEMS + 1


def test_advice_beyond_config_problems_never_hides_an_error() -> None:
    tenants = "---\n".join(TENANT % (f"t{n}", "{}") for n in range(limits.CONFIG_PROBLEMS + 50))
    found = problems_of(tenants)
    assert [problem.code for problem in found if problem.is_error] == ["HR0201"]
    assert [problem.message for problem in found if problem.code == "HR0309"] == [
        "51 more warnings and hints are not listed"
    ]


def test_config_files_are_read_and_the_next_is_named() -> None:
    files = [(f"{n}.yaml", "") for n in range(limits.CONFIG_FILES + 2)]
    (problem,) = load(files).problems
    assert (problem.code, problem.file) == ("HR0610", f"{limits.CONFIG_FILES}.yaml")
    assert load(files[: limits.CONFIG_FILES]).ok


def test_config_bytes_bound_all_files_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONFIG_BYTES", 2 * len(LABEL))
    three = [(f"{n}.yaml", TENANT % (f"num{n}", "{}")) for n in range(3)]
    (problem,) = load(three).problems
    assert (problem.code, problem.file) == ("HR0610", "2.yaml")


def test_config_durations_and_sizes_are_bounded() -> None:
    longest, shortest = limits.CONFIG_DURATION_S, limits.CONFIG_DURATION_MIN_S
    assert FORMS["some-time"](f"{longest:.0f}s") is None
    assert FORMS["some-time"](f"{longest + 1:.0f}s") is not None
    assert FORMS["some-time"](f"{shortest * 1000:.0f}ms") is None
    assert FORMS["some-time"]("0.9ms") is not None
    assert FORMS["duration"]("0ms") is None
    assert FORMS["size"](f"{limits.CONFIG_SIZE_BYTES}") is None
    assert FORMS["size"](f"{limits.CONFIG_SIZE_BYTES + 1}") is not None


@pytest.mark.parametrize(
    "text",
    [
        TENANT % ("a", "{" + ", ".join(f"teir{n}: 1" for n in range(50_000)) + "}"),
        "---\n" * 100_000,
        "a: &a [" + "*a, " * 100_000 + "]",
        '"' + "x" * 1_000_000,
        "x" * 1_000_000 + ": 1",
        "- " * 1_000_000,
        "? " * 1_000_000,
    ],
    ids=["unknown fields", "separators", "aliases", "open quote", "long key", "dashes", "marks"],
)
def test_hostile_text_is_refused_in_time_that_grows_with_its_length(text: str) -> None:
    began = time.process_time()
    load([("a.yaml", text)])
    # Typically below 1 s; quadratic behaviour would take minutes.
    assert time.process_time() - began < 15


# --- the types --------------------------------------------------------------------------------


def parts(found: inspect.Type) -> list[inspect.Type]:
    """Types right below a type."""
    match found:
        case inspect.Metadata():
            return [found.type]
        case inspect.UnionType():
            return list(found.types)
        case inspect.StructType():
            return [field.type for field in found.fields]
        case inspect.VarTupleType():
            return [found.item_type]
        case inspect.DictType():
            return [found.key_type, found.value_type]
    return []


def every(found: inspect.Type) -> list[inspect.Type]:
    return [found, *(below for part in parts(found) for below in every(part))]


@pytest.mark.parametrize("kind", schema.KINDS)
def test_the_language_consists_of_types_that_the_loader_checks(kind: str) -> None:
    numbers = inspect.IntType | inspect.FloatType
    scalars = numbers | inspect.StrType | inspect.BoolType | inspect.LiteralType
    for each in every(inspect.type_info(schema.KINDS[kind])):
        assert parts(each) or isinstance(each, scalars | inspect.NoneType)
        pattern = each.pattern if isinstance(each, inspect.StrType) else None
        assert pattern is None or (pattern.startswith("^") and pattern.endswith("$"))


@pytest.mark.parametrize("kind", schema.KINDS)
def test_every_part_of_the_language_is_described(kind: str) -> None:
    for each in every(inspect.type_info(schema.KINDS[kind])):
        if isinstance(each, inspect.StructType):
            assert (each.cls.__doc__ or "").endswith(".")
