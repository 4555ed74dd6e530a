"""A page for every code of the lint: what it is, what to do, and a change that causes it."""

import difflib
import re
from pathlib import Path

from headrace.config.problems import CODES, render_analysis
from tests.fakes.golden_files import Golden
from tests.fakes.small_mesh import CLEAN, problems_of
from tests.unit.test_config_codes import CASES

ROOT = Path(__file__).parents[2]
LINES, COLUMNS = 16, 110
"""Of an example; more of it, as of files that are too large, shows nothing more."""


def page(code: str) -> str:
    """The page of a code."""
    row = CODES[code]
    parts = [f"# {code}: {row.title}\n", f"{row.severity.label}. {row.remedy}\n"]
    if code in CASES:
        parts.append(example(code, CASES[code][0]))
    parts.append("All codes are in [problems.md](../problems.md).\n")
    return "\n".join(parts)


def example(code: str, text: str) -> str:
    found = next(problem for problem in problems_of(text) if problem.code == code)
    lines = list(difflib.unified_diff(CLEAN.splitlines(), text.splitlines(), n=1, lineterm=""))[2:]
    shown = [_shown(line) for line in lines[:LINES]]
    if len(lines) > LINES:
        shown.append(f"(and {len(lines) - LINES} lines more)")
    said = _shown(render_analysis(found))
    change = "\n".join(shown)
    caused = f"A change that causes it:\n\n```diff\n{change}\n```\n"
    return f"{caused}\nis answered by\n\n```\n{said}\n```\n"


def _shown(line: str) -> str:
    printable = re.sub(r"[^\x20-\x7e]", lambda found: ascii(found[0])[1:-1], line)
    return printable if len(printable) <= COLUMNS else f"{printable[:COLUMNS]}..."


def test_every_code_has_a_page(golden: Golden) -> None:
    golden.check(ROOT / "docs" / "problems", "*.md", {f"{code}.md": page(code) for code in CODES})
