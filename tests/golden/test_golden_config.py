"""Configuration to problems and to the IR, as files; and what is generated from the language."""

from functools import cache
from pathlib import Path

import msgspec
import yaml

from headrace.config import jsonschema
from headrace.config.analyze import analyze, usable
from headrace.config.load import Loaded, load
from headrace.config.problems import Problem, document, render_analysis
from headrace.resolve import resolve
from tests.fakes.golden_files import Golden

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
INPUTS = sorted((HERE / "in").glob("*.yaml"))


@cache
def analyzed(path: Path) -> tuple[Loaded, tuple[Problem, ...]]:
    loaded = load([(path.name, path.read_text())])
    return loaded, analyze(loaded)


def test_configuration_has_these_problems(golden: Golden) -> None:
    texts = {
        f"{path.stem}.problems.txt": "".join(
            f"{render_analysis(problem)}\n    {problem.path}\n" for problem in analyzed(path)[1]
        )
        for path in INPUTS
    }
    golden.check(HERE / "out", "*.problems.txt", texts)


def test_configuration_without_errors_means_this(golden: Golden) -> None:
    texts = {
        f"{path.stem}.ir.yaml": yaml.safe_dump(
            msgspec.to_builtins(resolve(analyzed(path)[0])), sort_keys=False, width=100
        )
        for path in INPUTS
        if usable(analyzed(path)[1])
    }
    golden.check(HERE / "out", "*.ir.yaml", texts)


def test_the_json_schema_is_that_of_the_types(golden: Golden) -> None:
    text = jsonschema.render().decode()
    golden.check(ROOT / "mesh-config" / "schema", "*.json", {"mesh.schema.json": text})


def test_the_page_about_problems_is_that_of_the_table(golden: Golden) -> None:
    golden.check(ROOT / "docs", "problems.md", {"problems.md": document()})
