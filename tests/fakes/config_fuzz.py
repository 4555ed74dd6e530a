"""Configurations that were spoilt at random, and what becomes of them.

Good YAML is changed in a few places: values that programs trip over, fields that come and go, items
that are there twice, values of other places. What the loader lets pass a real Envoy must take.
"""

import asyncio
import copy
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from headrace.config.schema import KINDS
from headrace_xds.compiler import check
from headrace_xds.gate.gate import Gate
from headrace_xds.translate.fragments import FragmentCache

ROOT: Final = Path(__file__).parents[2]
TEXTS: Final = (
    *("", "a" * 300, "A", "-a", "a.b", "a/b", "a b", "*", "*.*", "*.example", ".", "..", "(("),
    *("%REQ(x)%", "%", "${x}", "{}", "[]", "~", "null", "true", "0", "-1", "1e9s", "0s", ".*"),
    *("1us", "0.0001s", "127.0.0.1", "::1", "0.0.0.0", "256.1.1.1", "localhost", "x:1"),
    *("host", "Host", ":path", ":authority", "content-length", "transfer-encoding", "te"),
    *("connection", "cookie", "x-headrace-version", "x-é", "名前", "\u202e", "\x7f", "a\nb"),
    *("a\tb", "'", '"', "models", "nodes", "gateway", "eu", "stable", "echo"),
    *("0" * 64, "g" * 64, "f" * 64),
)
DURATIONS: Final = ("0s", "1us", "1ms", "0.5s", "1s", "10s", "1m30s", "1h", "24h", "25h")
NUMBERS: Final = (
    *(0, -1, 1, 2, 3, 99, 100, 101, 9_999, 10_000, 10_001, 65_535, 65_536, 2**31 - 1, 2**31),
    *(2**53, 2**64, 0.5, 99.99, -0.0, 1e308, float("inf"), float("nan"), True, False),
)
OTHERS: Final[tuple[Any, ...]] = (None, [], {}, [[]], [{}], {"a": 1}, [1, 1], ["a", "a"])


def seeds() -> list[list[Any]]:
    """Documents of every good configuration of the repository."""
    files = [
        *sorted((ROOT / "mesh-config" / "examples").glob("*.yaml")),
        *(p for p in sorted((ROOT / "tests" / "golden" / "in").glob("*.yaml")) if _is_good(p)),
    ]
    return [list(yaml.safe_load_all(file.read_text())) for file in files]


def spoilt(rng: random.Random, documents: list[Any]) -> str:
    """YAML of the documents with one to four changes."""
    changed = copy.deepcopy(documents)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        _spoil(rng, changed)
    return yaml.safe_dump_all(changed, allow_unicode=True, sort_keys=False)


@dataclass
class Report:
    """What became of so many configurations."""

    cases: int = 0
    accepted: int = 0
    crashes: list[str] = field(default_factory=list)
    """Texts that the loader or the compiler broke down on."""
    refused: list[str] = field(default_factory=list)
    """Texts that the loader accepted and Envoy did not, with Envoy's reason."""

    def __str__(self) -> str:
        """The first failure in full."""
        return "\n".join([*self.crashes[:1], *self.refused[:1]])


def fuzz(cases: Iterable[int], gate: Gate) -> Report:
    """Spoil, check, and ask Envoy about what was accepted; a case is the number of its seed."""
    good, report = seeds(), Report()
    with asyncio.Runner() as runner:
        for case in cases:
            rng = random.Random(case)
            text = spoilt(rng, rng.choice(good))
            report.cases += 1
            checked = check({"a.yaml": text}, FragmentCache())
            if checked.failure:
                report.crashes.append(f"case {case}: {checked.failure}\n{text}")
            if checked.compiled is None:
                continue
            report.accepted += 1
            found = runner.run(gate.judge(checked.compiled.mesh, checked.compiled.resources))
            report.refused += [f"case {case}: {problem.message}\n{text}" for problem in found]
    return report


def _is_good(path: Path) -> bool:
    return not path.name.startswith(("bad-", "empty"))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container below a value with every key of it."""
    if isinstance(value, dict):
        keys: Iterable[Any] = list(value)
    elif isinstance(value, list):
        keys = range(len(value))
    else:
        return
    for key in keys:
        yield value, key
        yield from _places(value[key])


def _spoil(rng: random.Random, documents: list[Any]) -> None:
    places = list(_places(documents))
    container, key = rng.choice(places)
    leaves = [(c, k) for c, k in places if not isinstance(c[k], dict)]
    match rng.randrange(10):
        case 0 | 1 | 2 | 3 | 4 | 5 if leaves:
            container, key = rng.choice(leaves)
            container[key] = _other(rng, container[key])
        case 6:
            del container[key]
        case 7 if isinstance(container, list):
            container.append(copy.deepcopy(container[key]))
        case 8:
            source, other = rng.choice(places)
            container[key] = copy.deepcopy(source[other])
        case _:
            document = rng.choice(documents)
            if isinstance(document, dict) and isinstance(document.get("spec"), dict):
                _add_field(rng, document)


def _other(rng: random.Random, value: Any) -> Any:
    """Another value, mostly one like it: most others are refused at once."""
    return rng.choice((*TEXTS, *NUMBERS, *OTHERS) if rng.random() < 0.1 else _alike(rng, value))


def _alike(rng: random.Random, value: Any) -> Sequence[Any]:
    """Values to choose from, of the same kind or close by."""
    close = rng.random() < 0.7
    match value:
        case bool():
            found: Sequence[Any] = (not value,)
        case int() | float():
            nearby = (value + 1, value - 1, value * 2, value // 2, value * 100)
            found = nearby if close else NUMBERS
        case str() if value[:1].isdigit() and value[-1:] in "smh":
            found = DURATIONS
        case str():
            nearby_texts = (f"{value}-2", value.upper(), value[:-1], f"{value}.example", value)
            found = nearby_texts if close else TEXTS
        case list() if value and close:
            found = (value[:-1], value[1:], value[::-1], [*value, value[0]])
        case _:
            found = OTHERS
    return found


def _add_field(rng: random.Random, document: Any) -> None:
    """Write a field of the language that was left out."""
    kind = KINDS.get(str(document.get("kind")))
    if kind is None:
        return
    spec = next(f.type for f in msgspec.structs.fields(kind) if f.name == "spec")
    fields = msgspec.structs.fields(spec)
    chosen = rng.choice(fields)
    document["spec"][chosen.encode_name] = rng.choice((*TEXTS, *NUMBERS, *OTHERS))
