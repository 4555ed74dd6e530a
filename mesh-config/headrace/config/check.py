"""Nodes against the types of the mesh language: every problem at once, each at its place.

msgspec stops at its first error and knows no lines; this walk uses msgspec's own description of the
types, so that a field added to ``schema`` is checked here without a word.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec
import yaml
from msgspec import inspect

from headrace.config import schema
from headrace.config.problems import Problem, near
from headrace.config.yaml import column_of, line_of, scalar

_MISSING: Any = object()
"""Stands for a value that had a problem."""

_KIND_TYPES = {kind: inspect.type_info(cls) for kind, cls in schema.KINDS.items()}


class Check:
    """One walk over one document."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.object = ""
        self.problems: list[Problem] = []
        self._wrong_version: yaml.Node | None = None

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
        fields = {key.value: value for key, value in root.value if _is_text(key)}
        if "kind" not in fields:
            self._bad(root, "HR0607", "$", 'missing field "kind"' + near("", schema.KINDS))
            return None
        kind = str(fields["kind"].value)
        if kind not in schema.KINDS:
            message = f'unknown kind "{kind}"{near(kind, schema.KINDS)}'
            self._bad(fields["kind"], "HR0608", "$.kind", message)
            return None
        version = fields.get("apiVersion")
        if version is not None and version.value != schema.API_VERSION:
            message = f'unknown apiVersion "{version.value}"; write {schema.API_VERSION}'
            self._bad(version, "HR0609", "$.apiVersion", message)
            self._wrong_version = version
        return kind

    def _value(self, node: yaml.Node, expected: inspect.Type, path: str) -> Any:
        match expected:
            case inspect.Metadata():
                return self._value(node, expected.type, path)
            case inspect.UnionType():
                return self._union(node, expected, path)
            case inspect.StructType():
                return self._struct(node, expected, path)
            case inspect.VarTupleType() | inspect.ListType():
                return self._list(node, expected, path)
            case inspect.DictType():
                return self._dict(node, expected, path)
        return self._scalar(node, expected, path)

    def _union(self, node: yaml.Node, expected: inspect.UnionType, path: str) -> Any:
        """Only ``X | None`` occurs in the language."""
        if isinstance(node, yaml.ScalarNode) and scalar(node) is None:
            return None
        (only,) = (t for t in expected.types if not isinstance(t, inspect.NoneType))
        return self._value(node, only, path)

    def _struct(self, node: yaml.Node, expected: inspect.StructType, path: str) -> Any:
        if not isinstance(node, yaml.MappingNode):
            name = expected.cls.__name__
            return self._bad(
                node, "HR0604", path, f"expected a mapping ({name}), got {_what(node)}"
            )
        fields = {field.encode_name: field for field in expected.fields}
        tag = expected.tag_field
        plain: dict[str, Any] = {}
        given = self._keys(node, path)
        for name, (key, value) in given.items():
            if name == tag:
                plain[name] = expected.tag
            elif value is self._wrong_version:
                plain[name] = _MISSING
            elif name not in fields:
                message = f'unknown field "{name}"{near(name, fields)}'
                self._bad(key, "HR0602", f"{path}.{name}", message)
            else:
                plain[name] = self._value(value, fields[name].type, f"{path}.{name}")
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
                message = f'duplicate key "{name}", first on line {first}'
                self._bad(key, "HR0603", f"{path}.{name}", message)
                continue
            found[name] = (key, value)
        return found

    def _list(
        self, node: yaml.Node, expected: inspect.VarTupleType | inspect.ListType, path: str
    ) -> Any:
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
        given = self._keys(node, path)
        for name, (key, _) in given.items():
            self._bounds(key, expected.key_type, name, path)
        return {
            name: self._value(value, expected.value_type, f"{path}.{name}")
            for name, (_, value) in given.items()
        }

    def _scalar(self, node: yaml.Node, expected: inspect.Type, path: str) -> Any:
        if not isinstance(node, yaml.ScalarNode):
            return self._bad(node, "HR0604", path, f"expected a single value, got {_what(node)}")
        value = scalar(node)
        match expected:
            case inspect.LiteralType():
                if value not in expected.values or isinstance(value, bool):
                    options = [str(option) for option in expected.values]
                    message = f'"{node.value}" is not allowed{near(str(node.value), options)}'
                    return self._bad(node, "HR0606", path, message)
            case inspect.StrType():
                if not isinstance(value, str):
                    hint = "; quote it if it is meant as text" if node.value else ""
                    message = f"expected text, got {_what(node)}{hint}"
                    return self._bad(node, "HR0604", path, message)
            case inspect.BoolType():
                if not isinstance(value, bool):
                    message = f"expected true or false, got {_what(node)}"
                    return self._bad(node, "HR0604", path, message)
            case inspect.IntType():
                if not isinstance(value, int) or isinstance(value, bool):
                    message = f"expected a whole number, got {_what(node)}"
                    return self._bad(node, "HR0604", path, message)
        return self._bounds(node, expected, value, path)

    def _bounds(self, node: yaml.Node, expected: inspect.Type, value: Any, path: str) -> Any:
        if isinstance(expected, inspect.Metadata):
            return self._bounds(node, expected.type, value, path)
        if isinstance(expected, inspect.StrType):
            if expected.pattern and not re.search(expected.pattern, value):
                message = f'"{_short(value)}" does not match {expected.pattern}'
                return self._bad(node, "HR0606", path, message)
            if expected.max_length is not None and len(value) > expected.max_length:
                message = f"longer than {expected.max_length} characters"
                return self._bad(node, "HR0605", path, message)
        if isinstance(expected, inspect.IntType):
            low, high = expected.ge, expected.le
            if (low is not None and value < low) or (high is not None and value > high):
                bounds = f"{'' if low is None else low}..{'' if high is None else high}"
                return self._bad(node, "HR0605", path, f"{value} is outside {bounds}")
        return value

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


def _is_text(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and isinstance(scalar(node), str)


def _name(root: yaml.Node) -> str:
    """Name in the metadata, as far as there is one."""
    metadata = _lookup(root.value, "metadata")
    if not isinstance(metadata, yaml.MappingNode):
        return ""
    name = _lookup(metadata.value, "name")
    return _short(str(name.value)) if isinstance(name, yaml.ScalarNode) else ""


def _lookup(pairs: Iterable[tuple[yaml.Node, yaml.Node]], name: str) -> yaml.Node | None:
    return next((value for key, value in pairs if _is_text(key) and key.value == name), None)


def _what(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if not isinstance(node, yaml.ScalarNode) or (scalar(node) is None and not node.value):
        return "nothing"
    shown = _short(str(node.value))
    return f'the text "{shown}"' if isinstance(scalar(node), str) else shown


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _SHOWN else flat[:_SHOWN] + "…"


_SHOWN = 60
