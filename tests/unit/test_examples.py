"""The examples and the YAML in the documentation: people copy them, so they must be right."""

import re
from pathlib import Path

import pytest

from headrace.config.analyze import analyze
from headrace.config.load import load
from headrace.resolve import resolve

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "mesh-config" / "examples"
FILES = sorted(EXAMPLES.rglob("*.yaml"))
CONFIGURATIONS = sorted({EXAMPLES / path.relative_to(EXAMPLES).parts[0] for path in FILES})
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MODELINE = re.compile(r"# yaml-language-server: \$schema=(\S+)\n# [A-Z]")


def texts(path: Path) -> list[tuple[str, str]]:
    files = [path] if path.is_file() else sorted(path.glob("*.yaml"))
    return [(file.name, file.read_text()) for file in files]


def test_there_is_an_example_of_each_first_step() -> None:
    names = {path.stem for path in CONFIGURATIONS}
    assert names >= {"local", "single-region", "canary", "shadow"}


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.stem)
def test_an_example_has_no_problem_at_all(path: Path) -> None:
    loaded = load(texts(path))
    assert analyze(loaded) == ()
    assert resolve(loaded).versions


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_tells_editors_its_schema_and_people_its_purpose(path: Path) -> None:
    found = MODELINE.match(path.read_text())
    assert found is not None
    assert (path.parent / found[1]).resolve() == ROOT / "mesh-config/schema/mesh.schema.json"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_yaml_in_a_page_is_part_of_an_example_or_a_whole_configuration(page: Path) -> None:
    examples = [path.read_text() for path in FILES]
    for block in BLOCK.findall(page.read_text()):
        is_quoted = any(block in text for text in examples)
        assert is_quoted or analyze(load([(page.name, block)])) == ()
