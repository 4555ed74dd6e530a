"""The YAML that the documentation shows: people copy it, so it must be right."""

import re
from pathlib import Path

import pytest

from headrace.config.analyze import analyze
from headrace.config.load import load

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "mesh-config" / "examples").rglob("*.yaml"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_yaml_in_a_page_is_part_of_an_example_or_a_whole_configuration(page: Path) -> None:
    examples = [path.read_text() for path in EXAMPLES]
    for block in BLOCK.findall(page.read_text()):
        is_quoted = any(block in text for text in examples)
        assert is_quoted or analyze(load([(page.name, block)])) == ()


def test_there_is_yaml_in_the_documentation() -> None:
    assert any(BLOCK.search(page.read_text()) for page in PAGES)
