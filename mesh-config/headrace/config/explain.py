"""What a kind or a field of the mesh language is: type, bounds, default, meaning.

Everything said comes out of the types of ``schema``, so it cannot differ from what is checked.
"""

from typing import Any

import msgspec
from msgspec import inspect

from headrace.config import schema
from headrace.config.problems import near

_WORDS: dict[type[inspect.Type], str] = {
    inspect.StrType: "text",
    inspect.IntType: "int",
    inspect.FloatType: "number",
    inspect.BoolType: "true|false",
}


class Explained(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A kind or a field, and the fields below it."""

    kind: str
    path: str
    """Names from the kind down to the field; empty for the kind itself."""
    type: str
    """``int 0..3``, ``duration``, ``list of ArmSpec``, ``stable|canary``."""
    form: str = ""
    """The pattern of a text, in words."""
    required: bool
    default: Any = None
    description: str
    fields: tuple["Explained", ...] = ()

    @property
    def name(self) -> str:
        """Last name of the path."""
        return self.path.rpartition(".")[2]


class UnknownFieldError(Exception):
    """There is no such kind or field; the message says what there is."""


def explain(what: str) -> Explained:
    """The kind or field that ``what`` names, such as ``route.spec.retry``."""
    word, *names = what.split(".")
    kind = _kind(word)
    found = _fields(kind, "", inspect.type_info(schema.KINDS[kind]))
    here = _of_kind(kind, found)
    for name in names:
        below = {each.name: each for each in here.fields}
        if name not in below:
            raise UnknownFieldError(_unknown(here, name, below))
        here = below[name]
    return here


def every_field(kind: str) -> list[Explained]:
    """Every field of a kind, depth first."""
    found: list[Explained] = []
    ahead = list(reversed(explain(kind).fields))
    while ahead:
        found.append(ahead.pop())
        ahead += reversed(found[-1].fields)
    return found


def _kind(word: str) -> str:
    by_word = {kind.lower(): kind for kind in schema.KINDS}
    found = by_word.get(word.lower()) or by_word.get(_singular(word.lower()))
    if found is None:
        raise UnknownFieldError(f'there is no kind "{word}"{near(word.lower(), by_word)}')
    return found


def _singular(word: str) -> str:
    return word.removesuffix("es") if word == "meshes" else word.removesuffix("s")


def _unknown(here: Explained, name: str, below: dict[str, Explained]) -> str:
    place = f"{here.kind}.{here.path}".rstrip(".")
    inside = below.get("spec")
    if inside is not None and name in {each.name for each in inside.fields}:
        return f'{place} has no field "{name}"; did you mean "spec.{name}"?'
    if not below:
        return f'{place} is {here.type} and has no field "{name}"'
    return f'{place} has no field "{name}"{near(name, below)}'


def _of_kind(kind: str, fields: tuple[Explained, ...]) -> Explained:
    return Explained(
        kind=kind,
        path="",
        type=kind,
        required=True,
        description=_doc(schema.KINDS[kind]),
        fields=fields,
    )


def _fields(kind: str, above: str, found: inspect.Type) -> tuple[Explained, ...]:
    struct = _struct(found)
    if struct is None:
        return ()
    return tuple(_field(kind, above, each) for each in struct.fields)


def _field(kind: str, above: str, field: inspect.Field) -> Explained:
    path = f"{above}.{field.encode_name}".lstrip(".")
    return Explained(
        kind=kind,
        path=path,
        type=_type(field.type),
        form=_form(field.type),
        required=field.required,
        default=_default(field),
        description=_description(field.type),
        fields=_fields(kind, path, field.type),
    )


def _default(field: inspect.Field) -> Any:
    if field.default is not msgspec.NODEFAULT:
        return msgspec.to_builtins(field.default)
    if field.default_factory is not msgspec.NODEFAULT:
        return msgspec.to_builtins(field.default_factory())
    return None


def _struct(found: inspect.Type) -> inspect.StructType | None:
    """Struct that a field holds, holds a list of, or may hold."""
    match found:
        case inspect.StructType():
            return found
        case inspect.Metadata():
            return _struct(found.type)
        case inspect.UnionType():
            return next(filter(None, map(_struct, found.types)), None)
        case inspect.VarTupleType():
            return _struct(found.item_type)
    return None


def _description(found: inspect.Type) -> str:
    """The field's own words, else those of the struct it holds."""
    if isinstance(found, inspect.Metadata):
        own = (found.extra_json_schema or {}).get("description")
        return own if own is not None else _description(found.type)
    if isinstance(found, inspect.UnionType):
        return next(filter(None, map(_description, found.types)), "")
    return _doc(found.cls) if isinstance(found, inspect.StructType) else ""


def _doc(cls: type) -> str:
    return " ".join((cls.__doc__ or "").replace("``", "").split())


def _form(found: inspect.Type) -> str:
    match found:
        case inspect.Metadata():
            own = (found.extra or {}).get("hint", "")
            return own or _form(found.type)
        case inspect.UnionType():
            return next(filter(None, map(_form, found.types)), "")
        case inspect.VarTupleType():
            return _form(found.item_type)
        case inspect.DictType():
            return _form(found.key_type)
    return ""


def _type(found: inspect.Type) -> str:
    match found:
        case inspect.Metadata():
            named = (found.extra or {}).get("type")
            return named if named is not None else _type(found.type)
        case inspect.UnionType():
            return " or ".join(map(_type, _present(found)))
        case inspect.StructType():
            return found.cls.__name__.removesuffix("Spec")
        case inspect.VarTupleType():
            return f"{_count(found)}list of {_type(found.item_type)}"
        case inspect.DictType():
            return f"map of {_type(found.key_type)} to {_type(found.value_type)}"
    return _scalar(found)


def _scalar(found: inspect.Type) -> str:
    if isinstance(found, inspect.LiteralType):
        return "|".join(map(str, found.values))
    return f"{_WORDS[type(found)]}{_bounds(found)}"


def _present(found: inspect.UnionType) -> list[inspect.Type]:
    return [each for each in found.types if not isinstance(each, inspect.NoneType)]


def _bounds(found: inspect.Type) -> str:
    match found:
        case inspect.IntType() | inspect.FloatType():
            return _between(found.ge, found.le)
        case inspect.StrType(max_length=int(most)):
            return f" of at most {most} characters"
    return ""


def _between(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return ""
    return f" {'' if low is None else low}..{'' if high is None else high}"


def _count(found: inspect.VarTupleType) -> str:
    low, high = found.min_length or 0, found.max_length
    return f"{low}..{'' if high is None else high} " if low or high is not None else ""
