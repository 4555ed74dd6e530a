"""Changes to the YAML of a configuration that leave everything else as it was, byte by byte.

A document consists of its separator, the comments before it, its content and the comments behind
it. Replacing an object replaces the content; comments around it stay unless the new document has
some of its own in their place. What stands between the lines of the content is part of it.
"""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import yaml

from headrace import limits
from headrace.config.chunks import BYTE_ORDER_MARK, chunks, is_marker
from headrace.config.load import load
from headrace.config.yaml import documents, scalar

_MODELINE = re.compile(r"# yaml-language-server:")
"""Tells editors of the schema: it belongs to the file, not to its first document."""


class NotFoundError(LookupError):
    """No file defines the object."""


class Document(msgspec.Struct, frozen=True):
    """A chunk of a file, what it defines, and its text in parts."""

    kind: str
    name: str
    separator: str
    before: str
    content: str
    after: str
    end: str
    """``...``, where a document ends with it."""

    @property
    def text(self) -> str:
        """All parts."""
        return self.separator + self.before + self.content + self.after + self.end


def upsert(files: Mapping[str, str], text: str) -> dict[str, str]:
    """Files that change when the objects of a text are applied, with their new content.

    An object that a file defines is replaced where it stands; a new one gets a file of its own.
    ValueError when the text itself cannot be read.
    """
    if problems := load([("-", text)]).problems:
        raise ValueError(problems[0].message)
    current = {file: split(content) for file, content in sorted(files.items())}
    places = _places(current)
    for document in split(text):
        if not document.kind:
            continue
        place = places.get((document.kind, document.name))
        if place is None:
            current[_new_name(current, document)] = [_alone(document)]
        else:
            file, index = place
            current[file][index] = _replaced(current[file][index], document, is_first=index == 0)
    joined = {file: "".join(each.text for each in parts) for file, parts in current.items()}
    return {file: content for file, content in joined.items() if files.get(file) != content}


def remove(files: Mapping[str, str], kind: str, name: str) -> dict[str, str]:
    """The file that changes when an object goes, "" when nothing is left of it.

    NotFoundError when there is no such object.
    """
    current = {file: split(content) for file, content in sorted(files.items())}
    place = _places(current).get((kind, name))
    if place is None:
        raise NotFoundError(f'no {kind} "{name}"')
    file, index = place
    parts = current[file]
    others = [*parts[:index], *parts[index + 1 :]]
    if not any(document.content for document in others):
        return {file: ""}
    kept = _modeline(parts[index].before) if index == 0 else ""
    return {file: kept + "".join(document.text for document in others)}


def split(text: str) -> list[Document]:
    """Documents of a file; joined, their texts are the file."""
    return [_document(chunk.text) for chunk in chunks(text)]


@functools.lru_cache(maxsize=limits.CONFIG_DOCUMENTS)
def _document(chunk: str) -> Document:
    text = chunk.removeprefix(BYTE_ORDER_MARK)
    mark = chunk[: len(chunk) - len(text)]
    lines = text.splitlines(keepends=True)
    start = 0
    while start < len(lines) and (lines[start].startswith("%") or _is_bare_separator(lines[start])):
        start += 1
    end = len(lines) - (is_marker(lines[-1], "...") if lines else 0)
    first, last = start, end
    while first < last and _is_comment(lines[first]):
        first += 1
    while last > first and _is_comment(lines[last - 1]):
        last -= 1
    kind, name = _identity(chunk)
    return Document(
        kind=kind,
        name=name,
        separator=mark + "".join(lines[:start]),
        before="".join(lines[start:first]),
        content="".join(lines[first:last]),
        after="".join(lines[last:end]),
        end="".join(lines[end:]),
    )


def _identity(text: str) -> tuple[str, str]:
    """Kind and name of the object in a chunk, "" where there is none to be read."""
    roots, _ = documents("-", text)
    for root in roots:
        return _text(root, "kind"), _text(root, "metadata", "name")
    return "", ""


def _text(root: yaml.Node, *path: str) -> str:
    node = root
    for step in path:
        found = [value for key, value in _pairs(node) if key.value == step]
        if not found:
            return ""
        node = found[0]
    value = scalar(node) if isinstance(node, yaml.ScalarNode) else None
    return value if isinstance(value, str) else ""


def _pairs(node: yaml.Node) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    if isinstance(node, yaml.MappingNode):
        yield from node.value


def _places(files: Mapping[str, Sequence[Document]]) -> dict[tuple[str, str], tuple[str, int]]:
    """File and index of the first definition of every object."""
    found: dict[tuple[str, str], tuple[str, int]] = {}
    for file, parts in files.items():
        for index, document in enumerate(parts):
            found.setdefault((document.kind, document.name), (file, index))
    return found


def _alone(document: Document) -> Document:
    """A document as the only one of its file."""
    content, after = _ended(document.content), _ended(document.after)
    return msgspec.structs.replace(document, separator="", content=content, after=after, end="")


def _replaced(old: Document, new: Document, *, is_first: bool) -> Document:
    before = new.before if "#" in new.before else old.before
    if is_first and _modeline(old.before) and not _modeline(before):
        before = _modeline(old.before) + before
    content = new.content
    # Content on the line of its separator takes the separator along: "--- {kind: Mesh}".
    if is_marker(old.content, "---") and not is_marker(content, "---"):
        content = "---\n" + content
    elif not is_marker(old.content, "---") and is_marker(content, "---"):
        content = content[len("---") :].lstrip(" \t")
    after = new.after if "#" in new.after else old.after
    parts = {"before": before, "content": _ended(content), "after": _ended(after)}
    windows = "\r\n" in old.text
    changed = {name: _with_breaks(part, windows=windows) for name, part in parts.items()}
    return msgspec.structs.replace(old, **changed)


def _with_breaks(text: str, *, windows: bool) -> str:
    """Text with the line breaks of the file that it goes to."""
    plain = text.replace("\r\n", "\n")
    return plain.replace("\n", "\r\n") if windows else plain


def _modeline(before: str) -> str:
    """First line of a file where it is for editors."""
    line = before.splitlines(keepends=True)[0] if before else ""
    return _ended(line) if _MODELINE.match(line) else ""


def _new_name(files: Mapping[str, Sequence[Document]], document: Document) -> str:
    name = f"{document.kind.lower()}-{document.name}.yaml"
    number = 2
    while name in files:
        name = f"{document.kind.lower()}-{document.name}-{number}.yaml"
        number += 1
    return name


def _is_bare_separator(line: str) -> bool:
    return is_marker(line, "---") and _is_comment(line[len("---") :])


def _is_comment(line: str) -> bool:
    return line.strip() == "" or line.lstrip().startswith("#")


def _ended(text: str) -> str:
    return text if text.endswith("\n") or not text else text + "\n"
