"""A configuration out of its files: every object that is right, every problem there is."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import yaml

from headrace import limits
from headrace.config import schema
from headrace.config.check import Check, below
from headrace.config.problems import Problem
from headrace.config.yaml import column_of, documents, line_of, scalar

Kind = TypeVar("Kind", bound=schema.Object)


@dataclass(frozen=True, slots=True)
class Placed:
    """An object and where it stands."""

    object: schema.Object
    file: str
    line: int
    root: yaml.Node = field(repr=False, compare=False)

    @property
    def kind(self) -> str:
        """Kind of the object."""
        return type(self.object).__name__

    @property
    def name(self) -> str:
        """Name of the object."""
        return self.object.metadata.name

    def problem(self, code: str, path: Sequence[str | int], message: str) -> Problem:
        """A problem at a path of the object, or as deep as the path exists in the text."""
        node = _descend(self.root, path)
        return Problem(
            code=code,
            file=self.file,
            line=line_of(node),
            column=column_of(node),
            path=_text(path),
            message=message,
            object=f"{self.kind} {self.name}",
        )


@dataclass(frozen=True, slots=True)
class Loaded:
    """Objects in the order of files and lines, and what is wrong with the rest."""

    objects: tuple[Placed, ...]
    problems: tuple[Problem, ...]
    files: tuple[str, ...] = ()
    """Names of all files, those without an object too."""

    @property
    def ok(self) -> bool:
        """Whether every object could be read."""
        return not any(problem.is_error for problem in self.problems)

    def each(self, cls: type[Kind]) -> list[tuple[Placed, Kind]]:
        """Objects of a kind, with their places."""
        return [(p, p.object) for p in self.objects if isinstance(p.object, cls)]


def load(files: Sequence[tuple[str, str]]) -> Loaded:
    """Read files, given as name and text; never raises for what they contain."""
    objects: list[Placed] = []
    problems: list[Problem] = []
    read, refused = _affordable(files)
    for file, text in read:
        roots, found = documents(file, text)
        for root in roots:
            check = Check(file, room=limits.CONFIG_PROBLEMS - len(problems) - len(found))
            made = check.document(root)
            found += check.problems
            if made is not None:
                objects.append(Placed(made, file, line_of(root), root))
        problems += sorted(found, key=lambda problem: (problem.line, problem.column))
    objects, twice = _once(objects)
    names = tuple(file for file, _ in files)
    return Loaded(tuple(objects), _bounded([*refused, *problems, *twice]), names)


def _affordable(
    files: Sequence[tuple[str, str]],
) -> tuple[Sequence[tuple[str, str]], list[Problem]]:
    """Files before the first that is too many or too much, and what is wrong with it."""
    total = 0
    for index, (file, text) in enumerate(files):
        total += len(text)
        message = ""
        if index >= limits.CONFIG_FILES:
            message = f"more than {limits.CONFIG_FILES} files"
        elif total > limits.CONFIG_BYTES:
            message = f"all files together are larger than {limits.CONFIG_BYTES} bytes"
        if message:
            message += "; this one and the rest were not read"
            problem = Problem(code="HR0610", file=file, line=1, column=1, path="$", message=message)
            return files[:index], [problem]
    return files, []


def _once(objects: Sequence[Placed]) -> tuple[list[Placed], list[Problem]]:
    """The first of each kind and name; the others are problems."""
    first: dict[tuple[str, str], Placed] = {}
    problems = []
    for placed in objects:
        before = first.setdefault((placed.kind, placed.name), placed)
        if before is not placed:
            message = f'{placed.kind} "{placed.name}" is defined in {before.file}:{before.line} too'
            problems.append(placed.problem("HR0613", ("metadata", "name"), message))
    return list(first.values()), problems


def _bounded(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    if len(problems) <= limits.CONFIG_PROBLEMS:
        return tuple(problems)
    shown = problems[: limits.CONFIG_PROBLEMS]
    rest = len(problems) - len(shown)
    last = Problem(
        code="HR0616",
        file=shown[-1].file,
        line=shown[-1].line,
        column=shown[-1].column,
        path="$",
        message=f"{rest} more problems are not listed",
    )
    return (*shown, last)


def _descend(root: yaml.Node, path: Sequence[str | int]) -> yaml.Node:
    """Node at a path, or the deepest one on the way to it."""
    node = root
    for step in path:
        below = _step(node, step)
        if below is None:
            return node
        node = below
    return node


def _step(node: yaml.Node, step: str | int) -> yaml.Node | None:
    if isinstance(step, int):
        inside = isinstance(node, yaml.SequenceNode) and step < len(node.value)
        found: yaml.Node | None = node.value[step] if inside else None
        return found
    if not isinstance(node, yaml.MappingNode):
        return None
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and scalar(key) == step:
            return value  # type: ignore[no-any-return]
    return None


def _text(path: Sequence[str | int]) -> str:
    text = "$"
    for step in path:
        text = f"{text}[{step}]" if isinstance(step, int) else below(text, step)
    return text
