"""A file cut into its documents, as text: joined, they are the file again, byte by byte.

YAML forbids ``---`` and ``...`` at the start of a line inside a document, whatever is quoted or
indented there, so documents can be told apart without parsing them: one that is broken does not
hide those after it, and one that is replaced leaves the others as they were.
"""

from typing import Final

import msgspec

BYTE_ORDER_MARK: Final = "\ufeff"
"""May begin a file, where it means nothing."""

_BLANKS: Final = frozenset({"", " ", "\t", "\n", "\r"})


class Chunk(msgspec.Struct, frozen=True):
    """At most one document with its separator; ``line`` is where it begins, from 0."""

    line: int
    text: str


def chunks(text: str) -> list[Chunk]:
    """Chunks of a file in order."""
    found: list[Chunk] = []
    held: list[str] = []
    first = 0
    ended = directives = False
    for number, line in enumerate(text.splitlines(keepends=True)):
        bare = line if number else line.removeprefix(BYTE_ORDER_MARK)
        if held and (ended or (is_marker(line, "---") and not directives)):
            found.append(Chunk(first, "".join(held)))
            held, first, directives = [], number, False
        held.append(line)
        ended = is_marker(line, "...")
        directives = bare.startswith("%") or (directives and not is_marker(bare, "---"))
    if held:
        found.append(Chunk(first, "".join(held)))
    return found


def is_marker(line: str, marker: str) -> bool:
    """Whether a line begins or ends a document."""
    return line.startswith(marker) and line[len(marker) : len(marker) + 1] in _BLANKS
