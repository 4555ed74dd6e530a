"""The page of xDS rules names tests that exist, for every rule."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "xds-rules.md").read_text()
RULES = 15


def test_every_rule_has_tests_and_every_test_that_is_named_exists() -> None:
    rows = [line.split("|") for line in PAGE.splitlines() if re.match(r"\| (R\d|[a-z ]+ \|)", line)]
    by_rule = {row[1].strip(): re.findall(r"`(\w+)`", row[3]) for row in rows}
    assert {f"R{number}" for number in range(1, RULES + 1)} <= by_rule.keys()
    code = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for rule, tests in by_rule.items():
        if rule != "rule":
            assert tests, rule
        for test in tests:
            assert re.search(rf"\b(def|class) {test}\b|\b{test} = ", code), test
