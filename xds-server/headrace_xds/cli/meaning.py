"""Changes of objects as people read them: one line an object, one a field."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

_SIGNS: Final = {"added": "+", "removed": "-", "changed": "~"}


def lines(changes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """``~ route/chat`` and, below, ``spec.timeout: 10s -> 20s``."""
    for change in changes:
        yield f"{_SIGNS[change['what']]} {change['kind'].lower()}/{change['name']}"
        for field in change["fields"]:
            before, after = _text(field["before"]), _text(field["after"])
            yield f"    {field['path']}: {before} -> {after}"


def _text(value: object) -> str:
    if value is None:
        return "(unset)"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
