"""Tables as operators know them: upper-case heads, two spaces between columns, no boxes.

A cell is never wrapped or cut: what scripts cut out of a table must be whole.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

GAP = "  "
NOTHING = "-"


class Column(NamedTuple):
    """One column: its head, what it shows of a row, and whether only ``-o wide`` has it."""

    head: str
    cell: Callable[[Any], object]
    wide: bool = False


def table(columns: Sequence[Column], rows: Sequence[object], *, wide: bool = False) -> str:
    """Lines of a table; empty when there are no rows."""
    if not rows:
        return ""
    shown = [column for column in columns if wide or not column.wide]
    lines = [[column.head for column in shown]]
    lines += [[text(column.cell(row)) for column in shown] for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(shown))]
    return "\n".join(
        GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def text(value: object) -> str:
    """A cell's text: one line, never empty, so that columns can be counted."""
    match value:
        case None | "" | () | []:
            return NOTHING
        case bool():
            return "yes" if value else "no"
        case float():
            return number(value)
        case list() | tuple():
            return ",".join(text(item) for item in value)
        case _:
            return " ".join(str(value).split())


def number(value: float) -> str:
    """A number with as many digits as tell something."""
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}" if abs(value) < 1 else f"{value:.1f}"


def age(seconds: float | None) -> str:
    """An age in one unit, as in ``kubectl get``: ``8s``, ``5m``, ``3h``, ``2d``."""
    if seconds is None:
        return NOTHING
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{seconds:.0f}s"
