"""A configuration out of its files: every object that is right, every problem there is."""

import functools
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import yaml

from headrace import limits
from headrace.config import schema
from headrace.config.check import Check, below
from headrace.config.chunks import Chunk, chunks
from headrace.config.problems import Problem
from headrace.config.yaml import column_of, document, line_of, scalar, unreadable

Kind = TypeVar("Kind", bound=schema.Object)


@dataclass(frozen=True, slots=True)
class Placed:
    """An object and where it stands."""

    object: schema.Object
    file: str
    line: int
    root: yaml.Node = field(repr=False, compare=False)
    shift: int = field(default=0, repr=False, compare=False)
    """Lines that the document moved since its nodes were read."""

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
        steps = tuple(path)
        node, _ = _descend(self.root, steps)
        return Problem(
            code=code,
            file=self.file,
            line=line_of(node) + self.shift,
            column=column_of(node),
            path=_text(steps),
            message=message,
            object=f"{self.kind} {self.name}",
        )

    def line_at(self, path: Sequence[str | int]) -> tuple[int, bool]:
        """Line of a path of the object, or of the deepest part of it that is written, and whether
        all of it is.
        """
        node, depth = _descend(self.root, tuple(path))
        return line_of(node) + self.shift, depth == len(path)


class Readings:
    """What files and documents were read as, by their text; only what has no problem is kept.

    The same text gives the same objects, and not merely equal ones, so that whatever is derived
    from an object can be kept by its identity.
    """

    def __init__(self, limit: int = limits.CONFIG_DOCUMENTS) -> None:
        self._limit = limit
        self._files: dict[str, tuple[str, list[Placed]]] = {}
        self._documents: OrderedDict[str, Placed] = OrderedDict()

    def file(self, file: str, text: str, *, room: int) -> tuple[list[Placed], list[Problem]]:
        """Objects of a file and what is wrong with it, of which ``room`` problems are explained."""
        before = self._files.pop(file, None)
        if before is not None and before[0] == text:
            self._files[file] = before
            return before[1], []
        if problem := unreadable(file, text):
            return [], [problem]
        objects, problems = self._read(file, text, room)
        if before is not None:
            objects = _settled(objects, before[1])
        if not problems:
            self._files[file] = (text, objects)
        return objects, sorted(problems, key=lambda problem: (problem.line, problem.column))

    def keep_only(self, files: Iterable[str]) -> None:
        """Forget files that are not there any more."""
        there = set(files)
        self._files = {file: kept for file, kept in self._files.items() if file in there}

    def _read(self, file: str, text: str, room: int) -> tuple[list[Placed], list[Problem]]:
        objects: list[Placed] = []
        problems: list[Problem] = []
        budget = limits.CONFIG_ALIAS_NODES
        for chunk in chunks(text):
            if (kept := self._documents.get(chunk.text)) is not None:
                objects.append(_moved(kept, file, chunk.line))
                continue
            root, found, spent = document(file, chunk, budget)
            budget -= spent
            problems += found
            if budget < 0 or len(problems) > limits.CONFIG_PROBLEMS:
                break
            if root is None:
                continue
            check = Check(file, room=room - len(problems))
            made = check.document(root)
            problems += check.problems
            if made is None:
                continue
            placed = Placed(made, file, line_of(root), root)
            objects.append(placed)
            if not spent:
                self._keep(chunk, placed)
        return objects, problems

    def _keep(self, chunk: Chunk, placed: Placed) -> None:
        self._documents[chunk.text] = replace(placed, shift=-chunk.line)
        if len(self._documents) > self._limit:
            self._documents.popitem(last=False)


def _moved(kept: Placed, file: str, line: int) -> Placed:
    """A document that was read, at another place; ``kept`` counts lines from its own beginning."""
    shift = line + kept.shift
    return Placed(kept.object, file, line_of(kept.root) + shift, kept.root, shift)


def _settled(objects: list[Placed], before: Sequence[Placed]) -> list[Placed]:
    """Objects of a file read anew; of those that stand where they stood, the values of before."""
    known = {id(placed.object): placed for placed in before}
    return [
        kept
        if (kept := known.get(id(placed.object))) is not None and kept.line == placed.line
        else placed
        for placed in objects
    ]


@dataclass(frozen=True)
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
        return list(self._by_kind.get(cls, ()))

    @functools.cached_property
    def _by_kind(self) -> dict[type, list[tuple[Placed, Any]]]:
        found: dict[type, list[tuple[Placed, Any]]] = {}
        for placed in self.objects:
            found.setdefault(type(placed.object), []).append((placed, placed.object))
        return found


def load(files: Sequence[tuple[str, str]], readings: Readings | None = None) -> Loaded:
    """Read files, given as name and text; never raises for what they contain.

    With ``readings``, what was read before and is the same text now is not read again.
    """
    kept = Readings() if readings is None else readings
    objects: list[Placed] = []
    problems: list[Problem] = []
    read, refused = _affordable(files)
    for file, text in read:
        found, wrong = kept.file(file, text, room=limits.CONFIG_PROBLEMS - len(problems))
        objects += found
        problems += wrong
    kept.keep_only(file for file, _ in files)
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


@functools.lru_cache(maxsize=limits.CONFIG_DOCUMENTS)
def _descend(root: yaml.Node, path: tuple[str | int, ...]) -> tuple[yaml.Node, int]:
    """Node at a path, or the deepest one on the way to it, and how deep that is."""
    node = root
    for depth, step in enumerate(path):
        below = _step(node, step)
        if below is None:
            return node, depth
        node = below
    return node, len(path)


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


@functools.lru_cache(maxsize=limits.CONFIG_DOCUMENTS)
def _text(path: tuple[str | int, ...]) -> str:
    text = "$"
    for step in path:
        text = f"{text}[{step}]" if isinstance(step, int) else below(text, step)
    return text
