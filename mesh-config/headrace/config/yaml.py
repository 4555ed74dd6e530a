"""YAML text to nodes that know their place: strict, bounded, and with the scalars of YAML 1.2.

PyYAML's own loader would read ``on`` as true, ``014`` as 12 and the last of two equal keys; here
only its parser is used, and what the nodes mean is decided by :func:`scalar` and ``check``.
"""

import re
from collections.abc import Iterator

import yaml

from headrace import limits
from headrace.config.chunks import BYTE_ORDER_MARK, Chunk, chunks
from headrace.config.problems import Problem, shown

Scalar = str | int | float | bool | None

_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_TEXT = re.compile(
    "[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|\r(?!\n)"
)
"""What YAML forbids, and line breaks that editors count differently."""
_Loader: type = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_DIGITS = 30
"""A longer number is read as text, which no field for numbers takes."""


def documents(file: str, text: str) -> tuple[list[yaml.Node], list[Problem]]:
    """Root nodes of the documents of a file that are within every limit, and what is wrong with
    the others. A document that cannot be parsed does not hide those after it.
    """
    if problem := unreadable(file, text):
        return [], [problem]
    roots: list[yaml.Node] = []
    problems: list[Problem] = []
    budget = limits.CONFIG_ALIAS_NODES
    for chunk in chunks(text):
        root, found, spent = document(file, chunk, budget)
        budget -= spent
        problems += found
        if root is not None:
            roots.append(root)
        if budget < 0 or len(problems) > limits.CONFIG_PROBLEMS:
            break
    return roots, problems


def document(
    file: str, chunk: Chunk, budget: int = limits.CONFIG_ALIAS_NODES
) -> tuple[yaml.Node | None, list[Problem], int]:
    """Root of the document in a chunk, what is wrong with it, and the nodes its aliases expand to.

    There is no root where something is wrong, or nothing is there.
    """
    root, found = _document(file, chunk)
    if root is None or found:
        return None, found, 0
    spent, found = _aliases(file, root, budget)
    return None if found else root, found, spent


def scalar(node: yaml.ScalarNode) -> Scalar:
    """Value of a scalar by the core schema of YAML 1.2: quoted is always text.

    Numbers with leading zeros are text too: one reader's 12 is another's 14.
    """
    value: str = node.value
    if node.style in {"'", '"', "|", ">"}:
        return value
    if value in {"", "~", "null", "Null", "NULL"}:
        return None
    if value in {"true", "True", "TRUE", "false", "False", "FALSE"}:
        return value.lower() == "true"
    if _INT.fullmatch(value) and len(value) <= _DIGITS:
        return int(value)
    if _FLOAT.fullmatch(value) and len(value) <= _DIGITS:
        return float(value)
    return value


def line_of(node: yaml.Node) -> int:
    """Line of a node, from 1."""
    assert node.start_mark is not None, "PyYAML marks every node that it composes"
    return int(node.start_mark.line) + 1


def column_of(node: yaml.Node) -> int:
    """Column of a node, from 1."""
    assert node.start_mark is not None, "PyYAML marks every node that it composes"
    return int(node.start_mark.column) + 1


def children(node: yaml.Node) -> Iterator[yaml.Node]:
    """Nodes right below a node."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield key
            yield value
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value


def unreadable(file: str, text: str) -> Problem | None:
    """What keeps a file from being read at all, None when nothing does."""
    size = limits.CONFIG_FILE_BYTES
    if len(text) > size or len(text.encode(errors="surrogatepass")) > size:
        return _problem(file, 0, 0, "HR0610", f"the file is larger than {size} bytes")
    found = _NOT_TEXT.search(text)
    if found is None:
        return None
    start = found.start()
    line, column = text.count("\n", 0, start), start - (text.rfind("\n", 0, start) + 1)
    message = f"the character U+{ord(found[0]):04X} cannot stand in YAML; write it quoted, as \\u…"
    return _problem(file, line, column, "HR0614", message)


def _document(file: str, chunk: Chunk) -> tuple[yaml.Node | None, list[Problem]]:
    """Root of a chunk; None when it has none or cannot be parsed."""
    if (number := _tag_directive(chunk.text)) is not None:
        message = "the directive %TAG is not supported, as tags are not; leave it out"
        return None, [_problem(file, chunk.line + number, 0, "HR0617", message)]
    try:
        # The composer recurses in C, so how deep it would go must be known before it runs.
        is_empty, problem = _screen(file, chunk)
        if problem is not None:
            return None, [problem]
        if is_empty:
            return None, []
        root = yaml.compose(chunk.text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        return None, [_syntax(file, chunk, error)]
    assert root is not None, "a chunk with an event for a node has a node"
    message = "merge keys (<<) are not supported; write the fields out"
    return root, [_at(file, node, "HR0617", message) for node in _place(root, chunk.line)]


def _tag_directive(text: str) -> int | None:
    """Line of the first ``%TAG``: libyaml compares each with all before it, which takes minutes."""
    if "%TAG" not in text:
        return None
    for number, line in enumerate(text.removeprefix(BYTE_ORDER_MARK).split("\n")):
        if line.startswith("%TAG"):
            return number
        if line.strip() and not line.startswith("%") and not line.lstrip().startswith("#"):
            break
    return None


def _screen(file: str, chunk: Chunk) -> tuple[bool, Problem | None]:
    """Whether a chunk holds only separators and comments; what forbids to compose it: depth, and
    tags, which composed nodes no longer show.
    """
    depth = 0
    is_empty = True
    for event in yaml.parse(chunk.text, Loader=_Loader):
        if not isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent):
            continue
        is_empty = is_empty and isinstance(event, yaml.ScalarEvent) and _is_nothing(event)
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        assert event.start_mark is not None, "PyYAML marks every event that it parses"
        line, column = chunk.line + event.start_mark.line, event.start_mark.column
        if (tag := getattr(event, "tag", None)) is not None:
            message = f"the tag {shown(tag)} is not supported; leave it out"
            return False, _problem(file, line, column, "HR0617", message)
        if depth > limits.CONFIG_DEPTH:
            message = f"nested deeper than {limits.CONFIG_DEPTH} levels"
            return False, _problem(file, line, column, "HR0611", message)
    return is_empty, None


def _is_nothing(event: yaml.ScalarEvent) -> bool:
    return not event.style and not event.value


def _place(root: yaml.Node, line: int) -> list[yaml.Node]:
    """Count lines from the start of the file, not of the chunk; gives the merge keys met."""
    merges = []
    seen: set[int] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        node.start_mark = yaml.Mark("", 0, line_of(node) - 1 + line, column_of(node) - 1, None, 0)
        stack.extend(children(node))
        if isinstance(node, yaml.MappingNode):
            merges += [key for key, _ in node.value if key.value == "<<" and not key.style]
    return merges


def _aliases(file: str, root: yaml.Node, budget: int) -> tuple[int, list[Problem]]:
    """Nodes that the aliases of a document expand to, and whether that is too much or endless."""
    seen: set[int] = set()
    spent = 0
    stack: list[tuple[yaml.Node, tuple[int, ...], bool]] = [(root, (), False)]
    while stack:
        node, above, aliased = stack.pop()
        if id(node) in above:
            return spent, [_at(file, node, "HR0615", "this anchor contains itself")]
        aliased = aliased or id(node) in seen
        spent += aliased
        if spent > budget:
            message = f"aliases of the file expand to more than {limits.CONFIG_ALIAS_NODES} nodes"
            return spent, [_at(file, node, "HR0612", message)]
        seen.add(id(node))
        if not isinstance(node, yaml.ScalarNode):
            path = (*above, id(node))
            stack.extend((child, path, aliased) for child in reversed(list(children(node))))
    return spent, []


def _syntax(file: str, chunk: Chunk, error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line, mark.column) if mark else (0, 0)
    message = " ".join(str(error.problem or error.context or "invalid").split())
    lines = chunk.text.split("\n")
    if line >= len(lines):
        # libyaml ends a last line that has no line break, and then counts it.
        line, column = len(lines) - 1, len(lines[-1])
    if lines[line][column : column + 1] == "\t":
        message = "a tab cannot indent; use spaces"
    # Brackets are looked ahead for, so libyaml's own bound may be met before that of _screen.
    code = "HR0611" if message == "exceeded maximum nesting depth" else "HR0601"
    return _problem(file, chunk.line + line, column, code, shown(message))


def _at(file: str, node: yaml.Node, code: str, message: str) -> Problem:
    return _problem(file, line_of(node) - 1, column_of(node) - 1, code, message)


def _problem(file: str, line: int, column: int, code: str, message: str) -> Problem:
    """A problem of the text as such; line and column from 0, as PyYAML counts."""
    return Problem(
        code=code, file=file, line=line + 1, column=column + 1, path="$", message=message
    )
