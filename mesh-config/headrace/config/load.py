"""A configuration out of its files: every object that is right, every problem there is."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import yaml

from headrace import limits
from headrace.config import schema
from headrace.config.check import Check
from headrace.config.problems import Problem
from headrace.config.yaml import column_of, documents, line_of, scalar


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

    @property
    def ok(self) -> bool:
        """Whether every object could be read."""
        return not any(problem.is_error for problem in self.problems)

    def of(self, cls: type[schema.Object]) -> list[Placed]:
        """Objects of a kind."""
        return [placed for placed in self.objects if isinstance(placed.object, cls)]


def load(files: Sequence[tuple[str, str]]) -> Loaded:
    """Read files, given as name and text; never raises for what they contain."""
    objects: list[Placed] = []
    problems: list[Problem] = []
    for file, text in files[: limits.CONFIG_FILES]:
        roots, found = documents(file, text)
        problems += found
        for root in roots:
            check = Check(file)
            read = check.document(root)
            problems += check.problems
            if read is not None:
                objects.append(Placed(read, file, line_of(root), root))
    if len(files) > limits.CONFIG_FILES:
        problems.append(_too_many_files(files[limits.CONFIG_FILES][0]))
    objects, twice = _once(objects)
    return Loaded(tuple(objects), _bounded([*problems, *twice]))


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


def _too_many_files(file: str) -> Problem:
    message = f"more than {limits.CONFIG_FILES} files; this one and the rest were not read"
    return Problem(code="HR0610", file=file, line=1, column=1, path="$", message=message)


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
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
