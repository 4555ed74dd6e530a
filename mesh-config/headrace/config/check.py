"""Nodes against the types of the mesh language: every problem at once, each at its place.

msgspec stops at its first error and knows no lines; this walk uses msgspec's own description of the
types, so that a field added to ``schema`` is checked here without a word.
"""

import re
from collections.abc import Collection, Iterable
from typing import Any, Final

import msgspec
import yaml
from msgspec import inspect

from headrace import limits
from headrace.config import schema
from headrace.config.forms import FORMS
from headrace.config.problems import Problem, near, shown
from headrace.config.yaml import column_of, line_of, scalar

_MISSING: Any = object()
"""Stands for a value that had a problem."""

_KIND_TYPES = {kind: inspect.type_info(cls) for kind, cls in schema.KINDS.items()}
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_NUMBERS: Final[dict[type[inspect.Type], tuple[type | tuple[type, ...], str]]] = {
    inspect.BoolType: (bool, "true or false"),
    inspect.IntType: (int, "a whole number"),
    inspect.FloatType: ((int, float), "a number"),
}


class Check:
    """One walk over one document."""

    def __init__(self, file: str, *, room: int = limits.CONFIG_PROBLEMS) -> None:
        """With more problems than there is room for, they still are found, but not explained."""
        self.file = file
        self.object = ""
        self.problems: list[Problem] = []
        self._room = room

    def document(self, root: yaml.Node) -> schema.Object | None:
        """Object of a document, None when it has problems."""
        kind = self._kind(root)
        if kind is None:
            return None
        self.object = f"{kind} {_name(root)}".strip()
        plain = self._value(root, _KIND_TYPES[kind], "$")
        if self.problems:
            return None
        return msgspec.convert(plain, schema.KINDS[kind])

    def _kind(self, root: yaml.Node) -> str | None:
        if not isinstance(root, yaml.MappingNode):
            self._bad(root, "HR0604", "$", "expected an object with apiVersion, kind and metadata")
            return None
        node = _lookup(root.value, "kind")
        if node is None:
            self._bad(root, "HR0607", "$", 'missing field "kind"' + self._near("", schema.KINDS))
            return None
        if not isinstance(node, yaml.ScalarNode):
            self._bad(node, "HR0604", "$.kind", f"expected text, got {_what(node)}")
            return None
        kind = str(node.value)
        if kind not in schema.KINDS:
            message = f'unknown kind "{shown(kind)}"{self._near(kind, schema.KINDS)}'
            self._bad(node, "HR0608", "$.kind", message)
            return None
        return kind

    def _value(self, node: yaml.Node, expected: inspect.Type, path: str, *, hint: str = "") -> Any:
        match expected:
            case inspect.Metadata():
                hint = (expected.extra or {}).get("hint", "")
                value = self._value(node, expected.type, path, hint=hint)
                return value if value is _MISSING else self._form(node, expected, value, path)
            case inspect.UnionType():
                return self._union(node, expected, path)
            case inspect.StructType():
                return self._struct(node, expected, path)
            case inspect.VarTupleType():
                return self._list(node, expected, path)
            case inspect.DictType():
                return self._dict(node, expected, path)
        return self._scalar(node, expected, path, hint)

    def _union(self, node: yaml.Node, expected: inspect.UnionType, path: str) -> Any:
        """Only ``X | None`` occurs in the language."""
        if isinstance(node, yaml.ScalarNode) and scalar(node) is None:
            return None
        (only,) = (t for t in expected.types if not isinstance(t, inspect.NoneType))
        return self._value(node, only, path)

    def _struct(self, node: yaml.Node, expected: inspect.StructType, path: str) -> Any:
        if not isinstance(node, yaml.MappingNode):
            message = f"expected a mapping ({expected.cls.__name__}), got {_what(node)}"
            return self._bad(node, "HR0604", path, message)
        fields = {field.encode_name: field for field in expected.fields}
        known = [*fields, *filter(None, (expected.tag_field,))]
        plain: dict[str, Any] = {}
        given = self._keys(node, path)
        for name, (key, value) in given.items():
            if name == expected.tag_field:
                plain[name] = expected.tag
            elif name in fields:
                plain[name] = self._value(value, fields[name].type, below(path, name))
            else:
                message = f'unknown field "{shown(name)}"{self._near(name, known)}'
                self._bad(key, "HR0602", below(path, name), message)
        for name, field in fields.items():
            if field.required and name not in given:
                self._bad(node, "HR0607", path, f'missing field "{name}"')
        return plain

    def _keys(self, node: yaml.MappingNode, path: str) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        found: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            if not _is_text(key):
                self._bad(key, "HR0604", path, f"expected text as a key, got {_what(key)}")
                continue
            name = str(key.value)
            if name in found:
                first = line_of(found[name][0])
                message = f'duplicate key "{shown(name)}", first on line {first}'
                self._bad(key, "HR0603", below(path, name), message)
                continue
            found[name] = (key, value)
        return found

    def _list(self, node: yaml.Node, expected: inspect.VarTupleType, path: str) -> Any:
        if not isinstance(node, yaml.SequenceNode):
            return self._bad(node, "HR0604", path, f"expected a list, got {_what(node)}")
        count = len(node.value)
        low, high = expected.min_length or 0, expected.max_length
        if count < low or (high is not None and count > high):
            wanted = f"at least {low}" if count < low else f"at most {high}"
            self._bad(node, "HR0605", path, f"needs {wanted} items, has {count}")
        return [
            self._value(item, expected.item_type, f"{path}[{index}]")
            for index, item in enumerate(node.value)
        ]

    def _dict(self, node: yaml.Node, expected: inspect.DictType, path: str) -> Any:
        if not isinstance(node, yaml.MappingNode):
            return self._bad(node, "HR0604", path, f"expected a mapping, got {_what(node)}")
        plain = {}
        for name, (key, value) in self._keys(node, path).items():
            self._value(key, expected.key_type, below(path, name))
            plain[name] = self._value(value, expected.value_type, below(path, name))
        return plain

    def _scalar(self, node: yaml.Node, expected: inspect.Type, path: str, hint: str) -> Any:
        if not isinstance(node, yaml.ScalarNode):
            return self._bad(node, "HR0604", path, f"expected a single value, got {_what(node)}")
        value = scalar(node)
        match expected:
            case inspect.LiteralType():
                return self._literal(node, expected, value, path)
            case inspect.StrType():
                return self._str(node, expected, value, path, hint)
            case inspect.BoolType() | inspect.IntType() | inspect.FloatType():
                return self._number(node, expected, value, path)
        raise AssertionError(f"{path}: the language has no type {expected}")

    def _literal(
        self, node: yaml.ScalarNode, expected: inspect.LiteralType, value: Any, path: str
    ) -> Any:
        if value in expected.values:
            return value
        if path == "$.apiVersion":
            message = f'unknown apiVersion "{shown(node.value)}"; write {schema.API_VERSION}'
            return self._bad(node, "HR0609", path, message)
        options = [str(option) for option in expected.values]
        message = f'"{shown(node.value)}" is not allowed{self._near(node.value, options)}'
        return self._bad(node, "HR0606", path, message)

    def _str(
        self, node: yaml.ScalarNode, expected: inspect.StrType, value: Any, path: str, hint: str
    ) -> Any:
        if not isinstance(value, str):
            remedy = hint or ("quote it if it is meant as text" if node.value else "")
            message = f"expected text, got {_what(node)}" + (f"; {remedy}" if remedy else "")
            return self._bad(node, "HR0604", path, message)
        if expected.max_length is not None and len(value) > expected.max_length:
            return self._bad(node, "HR0605", path, f"longer than {expected.max_length} characters")
        # Not re.search, which lets a line break stand behind what "$" matches.
        if expected.pattern and not re.fullmatch(expected.pattern, value):
            remedy = hint or f"it must match {expected.pattern}"
            return self._bad(node, "HR0606", path, f'"{shown(value)}" is not allowed; {remedy}')
        return value

    def _number(self, node: yaml.ScalarNode, expected: Any, value: Any, path: str) -> Any:
        types, noun = _NUMBERS[type(expected)]
        is_bool = isinstance(expected, inspect.BoolType)
        if not isinstance(value, types) or isinstance(value, bool) is not is_bool:
            return self._bad(node, "HR0604", path, f"expected {noun}, got {_what(node)}")
        if is_bool:
            return value
        low, high = expected.ge, expected.le
        if (low is not None and value < low) or (high is not None and value > high):
            bounds = f"{'' if low is None else low}..{'' if high is None else high}"
            return self._bad(node, "HR0605", path, f"{value} is outside {bounds}")
        return value

    def _form(self, node: yaml.Node, expected: inspect.Metadata, value: Any, path: str) -> Any:
        name = (expected.extra or {}).get("form")
        wrong = FORMS[name](value) if name is not None else None
        if wrong is None:
            return value
        code = "HR0606" if wrong.startswith("not ") else "HR0605"
        return self._bad(node, code, path, f'"{shown(value)}" is {wrong}')

    def _near(self, word: str, options: Collection[str]) -> str:
        return near(word, options) if len(self.problems) < self._room else ""

    def _bad(self, node: yaml.Node, code: str, path: str, message: str) -> Any:
        self.problems.append(
            Problem(
                code=code,
                file=self.file,
                line=line_of(node),
                column=column_of(node),
                path=path,
                message=message,
                object=self.object,
            )
        )
        return _MISSING


def below(path: str, name: str) -> str:
    """Path of a field: ``$.spec.model``, or ``$.labels["a/b"]`` where the name is no plain word."""
    short = shown(name)
    return f"{path}.{short}" if _PLAIN_KEY.fullmatch(name) else f'{path}["{short}"]'


def _is_text(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and isinstance(scalar(node), str)


def _name(root: yaml.Node) -> str:
    """Name in the metadata, as far as there is one."""
    metadata = _lookup(root.value, "metadata")
    if not isinstance(metadata, yaml.MappingNode):
        return ""
    name = _lookup(metadata.value, "name")
    return shown(str(name.value)) if isinstance(name, yaml.ScalarNode) else ""


def _lookup(pairs: Iterable[tuple[yaml.Node, yaml.Node]], name: str) -> yaml.Node | None:
    return next((value for key, value in pairs if _is_text(key) and key.value == name), None)


def _what(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if not isinstance(node, yaml.ScalarNode) or (scalar(node) is None and not node.value):
        return "nothing"
    text = shown(str(node.value))
    return f'the text "{text}"' if isinstance(scalar(node), str) else text
