"""Versions that a proxy refused though everything was checked before it was published.

A refusal counts for every proxy of the same build, and for no other build: another Envoy may well
take the resource. It is held until an operator releases it, so that going back to a refused version
does not send it again. A mended resource has another version, which nothing holds.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from headrace import limits


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a resource that a build refuses, and who said so with what text."""

    build: str
    type_url: str
    name: str
    version: str
    proxy: str
    message: str
    at_s: float
    """When, in seconds since the epoch."""


OfName = Mapping[str, Refusal]
"""Refusals of one name, by version."""
_NONE: Final[Mapping[str, OfName]] = MappingProxyType({})


class Quarantine:
    """Every refusal that is held; the oldest gives way when there are too many."""

    def __init__(self, refusals: Iterable[Refusal] = ()) -> None:
        self._held: dict[tuple[str, str, str, str], Refusal] = {}
        self._by_name: dict[tuple[str, str], dict[str, dict[str, Refusal]]] = {}
        for refusal in refusals:
            self.hold(refusal)

    def __repr__(self) -> str:
        """One line for operators."""
        return f"<Quarantine held={len(self._held)}>"

    def __len__(self) -> int:
        """Refusals that are held."""
        return len(self._held)

    def __iter__(self) -> Iterator[Refusal]:
        """Oldest first."""
        return iter(self._held.values())

    def hold(self, refusal: Refusal) -> bool:
        """Hold a version back from a build; False where it is held already."""
        key = refusal.build, refusal.type_url, refusal.name, refusal.version
        if key in self._held:
            return False
        if len(self._held) >= limits.QUARANTINED:
            self._drop(next(iter(self._held.values())))
        self._held[key] = refusal
        names = self._by_name.setdefault((refusal.build, refusal.type_url), {})
        names.setdefault(refusal.name, {})[refusal.version] = refusal
        return True

    def release(self, type_url: str, name: str) -> tuple[Refusal, ...]:
        """Hold nothing of a resource back any more; what was held."""
        found = [r for r in self._held.values() if (r.type_url, r.name) == (type_url, name)]
        for refusal in found:
            self._drop(refusal)
        return tuple(found)

    def held(self, build: str, type_url: str) -> Mapping[str, OfName]:
        """What a build refuses of a type, by name and version."""
        return self._by_name.get((build, type_url), _NONE)

    def _drop(self, refusal: Refusal) -> None:
        del self._held[refusal.build, refusal.type_url, refusal.name, refusal.version]
        names = self._by_name[refusal.build, refusal.type_url]
        del names[refusal.name][refusal.version]
        if not names[refusal.name]:
            del names[refusal.name]
        if not names:
            del self._by_name[refusal.build, refusal.type_url]
