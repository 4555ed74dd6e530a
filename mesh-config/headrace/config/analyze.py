"""Everything that is wrong with a configuration, in the order of files and lines."""

from collections.abc import Mapping, Sequence
from itertools import islice

from headrace import limits
from headrace.config import lint, references, secrets
from headrace.config.load import Loaded
from headrace.config.problems import Problem
from headrace.config.secrets import SecretState


def analyze(
    loaded: Loaded, known_secrets: Mapping[str, SecretState] | None = None
) -> tuple[Problem, ...]:
    """The loader's problems, broken references and lint; secrets where it is known what there is.

    Every error is given at once. Where an object could not be read, what others say of its kind
    cannot be judged and is left out, so that one mistake is not reported twice; so is all advice.
    Advice never crowds out errors: each has a limit of its own.
    """
    unread = _unread(loaded)
    # Broken references are errors, and each costs a search for what was meant.
    broken = list(islice(references.check(loaded), limits.CONFIG_PROBLEMS + 1))
    held = () if known_secrets is None else secrets.check(loaded, known_secrets)
    judged = [p for p in (*broken, *lint.check(loaded), *held) if not _may_follow(p, unread)]
    found = [*loaded.problems, *judged]
    errors = [problem for problem in found if problem.is_error]
    advice = [p for p in found if not p.is_error and not (errors and p.code in _CONSEQUENCES)]
    if unread:
        advice = [problem for problem in loaded.problems if not problem.is_error]
    return _sorted(
        [
            *_bounded(errors, "HR0616", "more errors"),
            *_bounded(advice, "HR0309", "more warnings and hints"),
        ]
    )


_CONSEQUENCES = frozenset({"HR0301", "HR0306", "HR0308", "HR0310"})
"""Advice about objects that nothing names: with errors about names, that may be why."""


_NAMED = {
    "HR0101": "Pool",
    "HR0102": "Model",
    "HR0103": "Mesh",
    "HR0104": "Mesh",
    "HR0201": "Mesh",
}
"""Kind whose objects a problem misses."""
_TWICE = "HR0613"
"""Of an object that is there: its first definition was read."""


def _unread(loaded: Loaded) -> frozenset[str]:
    """Kinds of the objects that could not be read; "" where not even the kind is known."""
    return frozenset(
        problem.object.partition(" ")[0]
        for problem in loaded.problems
        if problem.is_error and problem.code != _TWICE
    )


def _may_follow(problem: Problem, unread: frozenset[str]) -> bool:
    """Whether a problem may be there only because what it misses could not be read."""
    kind = _NAMED.get(problem.code)
    return kind is not None and not unread.isdisjoint({kind, ""})


def usable(problems: tuple[Problem, ...]) -> bool:
    """Whether a configuration with these problems may be used."""
    return all(not problem.is_error for problem in problems)


def _bounded(problems: Sequence[Problem], code: str, what: str) -> list[Problem]:
    ordered = sorted(problems, key=lambda problem: -problem.severity)
    shown, rest = ordered[: limits.CONFIG_PROBLEMS], ordered[limits.CONFIG_PROBLEMS :]
    if not rest:
        return shown
    last = max(shown, key=_place)
    message = f"{len(rest)} {what} are not listed"
    return [
        *shown,
        Problem(
            code=code,
            file=last.file,
            line=last.line,
            column=last.column,
            path="$",
            message=message,
        ),
    ]


def _sorted(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(problems, key=lambda problem: (*_place(problem), problem.code)))


def _place(problem: Problem) -> tuple[str, int, int]:
    return (problem.file, problem.line, problem.column)
