"""Changes to the YAML of a configuration that leave everything else as it was, byte by byte."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import yaml

from headrace.config.load import load
from headrace.config.yaml import documents


class NotFoundError(LookupError):
    """No file defines the object."""


@dataclass(frozen=True, slots=True)
class Span:
    """A document of a file: the lines it takes, from 0, the last not included."""

    kind: str
    name: str
    first: int
    last: int


def upsert(files: Mapping[str, str], text: str) -> dict[str, str]:
    """Files that change when the objects of a text are applied, with their new content.

    An object that a file defines is replaced where it stands; a new one gets a file of its own.
    ValueError when the text itself cannot be read.
    """
    if problems := load([("-", text)]).problems:
        raise ValueError(problems[0].message)
    changed: dict[str, str] = {}
    for span, document in _documents(text):
        current = {**files, **changed}
        place = _find(current, span.kind, span.name)
        if place is None:
            changed[_new_name(current, span)] = document
            continue
        file, old = place
        fresh = _replace(current[file], old, document)
        if fresh != current[file]:
            changed[file] = fresh
    return changed


def remove(files: Mapping[str, str], kind: str, name: str) -> dict[str, str]:
    """The file that changes when an object goes, "" when nothing is left of it.

    NotFoundError when there is no such object.
    """
    place = _find(files, kind, name)
    if place is None:
        raise NotFoundError(f'no {kind} "{name}"')
    file, span = place
    if len(spans(files[file])) == 1:
        return {file: ""}
    return {file: _replace(files[file], span, "")}


def spans(text: str) -> tuple[Span, ...]:
    """Documents of a text that parses; those without kind and name have "" for them."""
    roots, _ = documents("-", text)
    lines = text.splitlines(keepends=True)
    found = []
    for root in roots:
        first = root.start_mark.line
        last = first
        while last < len(lines) and not _is_separator(lines[last]):
            last += 1
        while first > 0 and not _is_separator(lines[first - 1]):
            first -= 1
        found.append(Span(_text(root, "kind"), _text(root, "metadata", "name"), first, last))
    return tuple(found)


def _documents(text: str) -> Sequence[tuple[Span, str]]:
    lines = text.splitlines(keepends=True)
    return [(span, _ended("".join(lines[span.first : span.last]))) for span in spans(text)]


def _find(files: Mapping[str, str], kind: str, name: str) -> tuple[str, Span] | None:
    for file, text in sorted(files.items()):
        for span in spans(text):
            if (span.kind, span.name) == (kind, name):
                return file, span
    return None


def _replace(text: str, span: Span, document: str) -> str:
    lines = text.splitlines(keepends=True)
    before, after = lines[: span.first], lines[span.last :]
    if not document and after and _is_separator(after[0]):
        # The separator belongs to what follows; without the document one of two is enough.
        after = after[1:]
    elif not document and before and _is_separator(before[-1]):
        before = before[:-1]
    return "".join([*before, document, *after])


def _new_name(files: Mapping[str, str], span: Span) -> str:
    name = f"{span.kind.lower()}-{span.name}.yaml"
    number = 2
    while name in files:
        name = f"{span.kind.lower()}-{span.name}-{number}.yaml"
        number += 1
    return name


def _ended(document: str) -> str:
    return document if document.endswith("\n") else document + "\n"


def _is_separator(line: str) -> bool:
    return line.startswith("---") and line[3:].strip() in {"", "\n"}


def _text(node: yaml.Node, *path: str) -> str:
    for step in path:
        if not isinstance(node, yaml.MappingNode):
            return ""
        node = next(
            (value for key, value in node.value if key.value == step), yaml.Node("", "", None, None)
        )
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""
