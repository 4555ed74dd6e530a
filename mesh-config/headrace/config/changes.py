"""What an edit means: objects that come, go and change, field by field; text does not count."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from headrace.config.schema import Object

_IDENTITIES: Final = ("name", "version", "sha256")
"""Fields that tell the items of a list apart; an item without one is told by its place."""

What = Literal["added", "changed", "removed"]


class FieldChange(msgspec.Struct, frozen=True):
    """A field of an object: its path, and its value before and after, None where it was not."""

    path: str
    before: Any
    after: Any


class ObjectChange(msgspec.Struct, frozen=True):
    """An object that is there anew, no more, or with other fields."""

    kind: str
    name: str
    what: What
    fields: tuple[FieldChange, ...] = ()


def changes(before: Iterable[Object], after: Iterable[Object]) -> list[ObjectChange]:
    """Every object that means something else, by kind and name."""
    old, new = _by_key(before), _by_key(after)
    found: list[ObjectChange] = []
    for kind, name in sorted(old.keys() | new.keys()):
        one, other = old.get((kind, name)), new.get((kind, name))
        if one is None:
            found.append(ObjectChange(kind, name, "added"))
        elif other is None:
            found.append(ObjectChange(kind, name, "removed"))
        elif one != other:
            fields = tuple(_fields("spec", _plain(one.spec), _plain(other.spec)))
            found.append(ObjectChange(kind, name, "changed", fields))
    return found


def _by_key(objects: Iterable[Object]) -> dict[tuple[str, str], Object]:
    return {(type(item).__name__, item.metadata.name): item for item in objects}


def _plain(value: object) -> Any:
    return msgspec.to_builtins(value)


def _fields(path: str, before: Any, after: Any) -> Iterator[FieldChange]:
    if before == after:
        return
    match before, after:
        case dict(), dict():
            for key in sorted(before.keys() | after.keys()):
                yield from _fields(f"{path}.{key}", before.get(key), after.get(key))
        case ((list() | tuple()), (list() | tuple())):
            one, other = _items(before), _items(after)
            for key in sorted(one.keys() | other.keys()):
                yield from _fields(f"{path}[{key}]", one.get(key), other.get(key))
        case _:
            yield FieldChange(path, before, after)


def _items(values: Sequence[Any]) -> Mapping[str, Any]:
    """Items of a list by what tells them apart, the place where nothing does."""
    for identity in _IDENTITIES:
        names = [str(v[identity]) for v in values if isinstance(v, dict) and identity in v]
        if values and len(names) == len(values) == len(set(names)):
            return dict(zip((f"{identity}={name}" for name in names), values, strict=True))
    return {str(place): value for place, value in enumerate(values)}
