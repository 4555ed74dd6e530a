"""The shape of the code: budgets, names, and tables of which every row must be tested."""

import ast
import re
import statistics
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from headrace import headers, limits, names
from headrace.refusals import Refusal

OWN = Path(__file__)
ROOT = OWN.parents[2]
PACKAGES = ("mesh-config/headrace", "xds-server", "sidecar", "model-server")

FILE_LINES, FILE_LINES_MEDIAN = 400, 130
FUNCTION_LINES, FUNCTION_LINES_MEDIAN, FUNCTION_LINES_P90 = 60, 8, 30
NESTING = 3
VAGUE = {"utils", "util", "helper", "helpers", "manager", "base", "common", "misc"}

# This file alone is not searched for these.
MACHINE_PATHS = re.compile(r"(?<![\w.$}])/(?:work|root|home|tmp)/")
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")
SKIPPED = re.compile(r"pytest\.(?:mark\.)?(?:skip|skipif|xfail|importorskip)\b")
BARE_TASK = {"create_task", "ensure_future"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def project_files() -> tuple[Path, ...]:
    """Files of the project: what git knows or would take, or else all that lies there."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        tops = [*PACKAGES, "tests", "docs", ".ci"]
        found = [path for top in tops for path in (ROOT / top).rglob("*")]
        return tuple(sorted(path for path in found if path.is_file()))
    paths = [ROOT / name for name in done.stdout.split("\0") if name]
    return tuple(sorted(path for path in paths if path.is_file()))


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def code() -> dict[Path, ast.Module]:
    """Syntax trees of the packages."""
    tops = tuple(ROOT / top for top in PACKAGES)
    return {
        path: ast.parse(path.read_text())
        for path in project_files()
        if path.suffix == ".py" and any(path.is_relative_to(top) for top in tops)
    }


@cache
def texts_of_tests() -> dict[Path, str]:
    """Text of the tests."""
    return {
        path: path.read_text()
        for path in project_files()
        if path.suffix == ".py" and path.is_relative_to(ROOT / "tests") and path != OWN
    }


def functions() -> Iterator[tuple[str, Function]]:
    """Every function of the packages with its place."""
    for path, tree in code().items():
        for node in ast.walk(tree):
            if isinstance(node, Function):
                yield f"{shown(path)}:{node.lineno} {node.name}", node


def length(node: Function) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def nesting(node: ast.AST) -> int:
    """Deepest nesting of statements inside a function; an ``elif`` is as deep as its ``if``."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.ClassDef | ast.Lambda):
            continue
        deepest = max(deepest, nesting(child) + _deepens(child, parent=node))
    return deepest


def _deepens(node: ast.AST, *, parent: ast.AST) -> int:
    kinds = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.With, ast.AsyncWith, ast.Match)
    elif_ = isinstance(node, ast.If) and isinstance(parent, ast.If) and parent.orelse == [node]
    return int(isinstance(node, kinds) and not elif_)


def _is_setter(node: Function) -> bool:
    return any(isinstance(d, ast.Attribute) and d.attr == "setter" for d in node.decorator_list)


def test_no_file_is_longer_than_a_reader_can_hold() -> None:
    lines = {
        shown(path): len(path.read_text().splitlines()) for path in [*code(), *texts_of_tests()]
    }
    assert {name: count for name, count in lines.items() if count > FILE_LINES} == {}
    own = [lines[shown(path)] for path in code()]
    assert statistics.median(own) <= FILE_LINES_MEDIAN


def test_functions_are_short() -> None:
    lengths = {place: length(node) for place, node in functions()}
    assert {place: n for place, n in lengths.items() if n > FUNCTION_LINES} == {}
    assert statistics.median(lengths.values()) <= FUNCTION_LINES_MEDIAN
    assert statistics.quantiles(lengths.values(), n=10)[-1] <= FUNCTION_LINES_P90


def test_functions_are_flat() -> None:
    depths = {place: nesting(node) for place, node in functions()}
    assert {place: depth for place, depth in depths.items() if depth > NESTING} == {}


def test_no_switch_is_passed_by_position() -> None:
    # An Enum's constructor takes the columns of its table, whose rows are written without names.
    found = [
        f"{place}({argument.arg})"
        for place, node in functions()
        if not place.startswith("mesh-config/headrace/refusals.py") and not _is_setter(node)
        for argument in [*node.args.posonlyargs, *node.args.args]
        if isinstance(argument.annotation, ast.Name) and argument.annotation.id == "bool"
    ]
    assert found == []


def test_every_task_belongs_to_a_group() -> None:
    found = []
    for path, tree in code().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = node.func.value
                bare = isinstance(owner, ast.Name) and owner.id in ("asyncio", "loop")
                if bare and node.func.attr in BARE_TASK:
                    found.append(f"{shown(path)}:{node.lineno}")
    assert found == []


def test_modules_are_named_by_their_idea() -> None:
    assert [shown(path) for path in [*code(), *texts_of_tests()] if path.stem in VAGUE] == []


def test_test_files_have_names_of_their_own() -> None:
    counts = Counter(path.name for path in texts_of_tests() if path.name.startswith("test_"))
    assert {name for name, count in counts.items() if count > 1} == set()


def test_no_test_is_skipped() -> None:
    assert [shown(path) for path, text in texts_of_tests().items() if SKIPPED.search(text)] == []


def test_nothing_is_left_unfinished() -> None:
    assert _lines_that_match(UNFINISHED) == []


def test_nothing_depends_on_one_machine() -> None:
    assert _lines_that_match(MACHINE_PATHS) == []


def _lines_that_match(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for path in (path for path in project_files() if path != OWN):
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if pattern.search(line):
                found.append(f"{shown(path)}:{number} {line.strip()[:80]}")
    return found


def constants(module: ModuleType) -> list[str]:
    return [name for name in vars(module) if name.isupper()]


def test_every_limit_is_reached_by_a_test() -> None:
    assert [name for name in constants(limits) if not _is_tested(rf"\b{name}\b")] == []


def test_every_refusal_is_caused_by_a_test() -> None:
    patterns = {r.name: rf"\bRefusal\.{r.name}\b|[\"']{r.code}[\"']" for r in Refusal}
    assert [name for name, pattern in patterns.items() if not _is_tested(pattern)] == []


@pytest.mark.parametrize("module", [limits, headers, names], ids=lambda module: module.__name__)
def test_every_row_of_a_table_is_used(module: ModuleType) -> None:
    sources = [path.read_text() for path in code() if path != Path(str(module.__file__))]
    own = Path(str(module.__file__)).read_text()
    unused = [
        name
        for name in constants(module)
        if len(re.findall(rf"\b{name}\b", own)) == 1
        and not any(re.search(rf"\b{name}\b", text) for text in sources)
    ]
    assert unused == []


def test_refusal_codes_are_unique() -> None:
    counts = Counter(refusal.code for refusal in Refusal)
    assert {code_ for code_, count in counts.items() if count > 1} == set()


def _is_tested(pattern: str) -> bool:
    return any(re.search(pattern, text) for text in texts_of_tests().values())
