"""YAML text to nodes that know their place: strict, bounded, and with the scalars of YAML 1.2.

PyYAML's own loader would read ``on`` as true, ``014`` as 12 and the last of two equal keys; here
only its parser is used, and what the nodes mean is decided by :func:`scalar` and ``check``.
"""

import re
from collections.abc import Iterator

import yaml

from headrace import limits
from headrace.config.problems import Problem

Scalar = str | int | float | bool | None

_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_PLAIN_TAGS = frozenset(f"tag:yaml.org,2002:{t}" for t in ("str", "int", "float", "bool", "null",
    "map", "seq", "timestamp", "merge", "value"))  # fmt: skip
_Loader: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def documents(file: str, text: str) -> tuple[list[yaml.Node], list[Problem]]:
    """Root nodes of the documents of a file that is within every limit, or what is wrong.

    A document that cannot be parsed ends the file: what follows it has no known place.
    """
    if len(text.encode(errors="surrogatepass")) > limits.CONFIG_FILE_BYTES:
        size = limits.CONFIG_FILE_BYTES
        return [], [_at(file, None, "HR0610", f"the file is larger than {size} bytes")]
    roots: list[yaml.Node] = []
    problems: list[Problem] = []
    try:
        for root in _compose(text):
            found = _outsize(file, root)
            problems += found
            if not found:
                roots.append(root)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problems.append(_place(file, line, 1, "HR0614", f"not text: {error.reason}"))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = error.problem or error.context or "invalid"
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        problems.append(_place(file, line, column, "HR0601", _plain(message)))
    except RecursionError:
        problems.append(_at(file, None, "HR0611", _too_deep()))
    return roots, problems


def scalar(node: yaml.ScalarNode) -> Scalar:
    """Value of a scalar by the core schema of YAML 1.2: quoted is always text."""
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


_DIGITS = 30


def line_of(node: yaml.Node) -> int:
    """Line of a node, from 1."""
    return int(node.start_mark.line) + 1


def column_of(node: yaml.Node) -> int:
    """Column of a node, from 1."""
    return int(node.start_mark.column) + 1


def children(node: yaml.Node) -> Iterator[yaml.Node]:
    """Nodes right below a node."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield key
            yield value
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value


def _compose(text: str) -> Iterator[yaml.Node]:
    if _nested_deeper(text):
        raise RecursionError
    yield from (node for node in yaml.compose_all(text, Loader=_Loader) if node is not None)


def _nested_deeper(text: str) -> bool:
    """Whether the text nests past the limit; the C composer recurses, so this must come first."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > limits.CONFIG_DEPTH:
                return True
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return False


def _outsize(file: str, root: yaml.Node) -> list[Problem]:
    """Recursive aliases, aliases that expand to too much, and tags."""
    seen: set[int] = set()
    budget = limits.CONFIG_ALIAS_NODES
    stack: list[tuple[yaml.Node, tuple[int, ...], bool]] = [(root, (), False)]
    while stack:
        node, above, aliased = stack.pop()
        if id(node) in above:
            return [_at(file, node, "HR0615", "this anchor contains itself")]
        aliased = aliased or id(node) in seen
        budget -= aliased
        if budget < 0:
            message = f"aliases of the file expand to more than {limits.CONFIG_ALIAS_NODES} nodes"
            return [_at(file, node, "HR0612", message)]
        if node.tag not in _PLAIN_TAGS or node.tag.endswith(":merge"):
            return [_at(file, node, "HR0617", f"{_tag(node)} is not supported")]
        seen.add(id(node))
        if not isinstance(node, yaml.ScalarNode):
            path = (*above, id(node))
            stack.extend((child, path, aliased) for child in reversed(list(children(node))))
    return []


def _tag(node: yaml.Node) -> str:
    return "a merge key" if node.tag.endswith(":merge") else f"the tag {node.tag}"


def _too_deep() -> str:
    return f"nested deeper than {limits.CONFIG_DEPTH} levels"


def _plain(message: str) -> str:
    """PyYAML's words on one line."""
    return " ".join(str(message).split())


def _at(file: str, node: yaml.Node | None, code: str, message: str) -> Problem:
    line, column = (line_of(node), column_of(node)) if node is not None else (1, 1)
    return _place(file, line, column, code, message)


def _place(file: str, line: int, column: int, code: str, message: str) -> Problem:
    return Problem(code=code, file=file, line=line, column=column, path="$", message=message)
