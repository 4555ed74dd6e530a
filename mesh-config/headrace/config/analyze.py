"""Everything that is wrong with a configuration beyond its single objects."""

from headrace.config import lint, references
from headrace.config.load import Loaded
from headrace.config.problems import Problem


def analyze(loaded: Loaded) -> tuple[Problem, ...]:
    """The loader's problems, broken references and lint, in the order of files and lines.

    When an object could not be read, what others say of it cannot be judged: only the loader's
    problems are given then, so that one mistake is not reported twice.
    """
    found = list(loaded.problems)
    if loaded.ok:
        found += [*references.check(loaded), *lint.check(loaded)]
    return tuple(sorted(found, key=lambda p: (p.file, p.line, p.column, p.code)))


def usable(problems: tuple[Problem, ...]) -> bool:
    """Whether a configuration with these problems may be used."""
    return all(not problem.is_error for problem in problems)
