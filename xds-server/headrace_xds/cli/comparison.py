"""Two configurations side by side, for ``diff`` and ``plan``: meaning, resources, streams."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from headrace.config import edit
from headrace.config.changes import ObjectChange, changes
from headrace_xds.cli import in_effect, meaning, problems
from headrace_xds.cli.client import Admin
from headrace_xds.cli.console import CommandError, Console
from headrace_xds.compiler import Checked, check
from headrace_xds.impact import Impact, impact
from headrace_xds.translate.fragments import FragmentCache

NAMES_SHOWN: Final = 12
"""Resources of a type listed by name; the rest are counted."""

Files = Mapping[str, str]


class Comparison(NamedTuple):
    """What changes, and what that does to proxies."""

    objects: Sequence[ObjectChange]
    impact: Impact

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return not self.objects and not self.impact.resources

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "objects": msgspec.to_builtins(list(self.objects)),
            "resources": [change._asdict() for change in self.impact.resources],
            "drained": list(self.impact.drained),
        }

    def lines(self) -> Iterator[str]:
        """For people."""
        if self.is_empty:
            yield "nothing changes"
            return
        yield from meaning.lines(msgspec.to_builtins(list(self.objects)))
        yield ""
        yield from self._resources()
        if self.impact.drained:
            gateways = ", ".join(self.impact.drained)
            yield f"streams: those under way at {gateways} are cut once its listener has drained"
        else:
            yield "streams: none is cut"

    def _resources(self) -> Iterator[str]:
        by_type: dict[tuple[str, str], list[str]] = {}
        counts: Counter[str] = Counter()
        signs = {"added": "+", "removed": "-", "changed": "~"}
        for change in self.impact.resources:
            named = f"{signs[change.what]}{change.name}"
            by_type.setdefault((change.gateway, change.type), []).append(named)
            counts[change.gateway] += 1
        if not counts:
            yield "gateways: no resource changes"
        for (gateway, kind), names in by_type.items():
            more = len(names) - NAMES_SHOWN
            rest = f" and {more} more" if more > 0 else ""
            yield f"gateway {gateway}: {kind} {' '.join(names[:NAMES_SHOWN])}{rest}"


def compare(console: Console, before: Files, after: Files) -> Comparison:
    """Compile both; CommandError, with every problem said, when the second has errors."""
    cache = FragmentCache()
    old, new = check(before, cache), check(after, cache)
    for found in new.problems:
        if found.is_error:
            console.say(problems.line(console, found))
    if old.compiled is None or new.compiled is None:
        which = new if new.compiled is None else old
        raise CommandError(f"{_why(which)}; nothing can be compared")
    objects = changes([p.object for p in old.objects], [p.object for p in new.objects])
    return Comparison(objects, impact(old.compiled, new.compiled))


def running(admin: Admin) -> dict[str, str]:
    """The configuration in effect, a file for each kind."""
    files: dict[str, list[str]] = {}
    for name, text in in_effect.files(admin):
        files.setdefault(f"{name.partition('/')[0]}.yaml", []).append(text)
    return {name: "---\n".join(texts) for name, texts in files.items()}


def applied(before: Files, given: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Files after ``headrace apply`` of others."""
    text = "\n---\n".join(text for _, text in given)
    try:
        return {**before, **edit.upsert(before, text)}
    except ValueError as error:
        raise CommandError(str(error), remedy="headrace analyze -f says more") from None


def _why(checked: Checked) -> str:
    return checked.failure or problems.summary(checked.problems)
