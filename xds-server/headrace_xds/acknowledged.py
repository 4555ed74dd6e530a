"""What one proxy acknowledged of one type, against what is published to it.

A thousand proxies have thousands of resources each, and nearly all have what is published. So a
proxy that is up to date shares the published versions, and only what differs is kept for it: names
that are *pending*, which every fact about a name settles anew.
"""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final

Versions = Mapping[str, str]

NOTHING: Final[Versions] = MappingProxyType({})


class Acknowledged:
    """Versions by name; with ``whole``, what is not published any more is waited for as well."""

    __slots__ = ("_base", "_over", "_wanted", "_whole", "pending")

    def __init__(self, wanted: Versions, *, whole: bool) -> None:
        self._base = NOTHING
        self._over: dict[str, str] = {}
        """What differs from the base; "" for a name that the proxy has not."""
        self._wanted = wanted
        self._whole = whole
        self.pending: set[str] = set(wanted)
        """Names that are published at another version than the proxy has, or not any more."""

    def __contains__(self, name: str) -> bool:
        """Whether the proxy has a resource."""
        return self.get(name) is not None

    def __bool__(self) -> bool:
        """Whether the proxy has anything."""
        return bool(self._over) or bool(self._base)

    def get(self, name: str) -> str | None:
        """Version that the proxy has, None when it has none."""
        version = self._over.get(name)
        if version is None:
            return self._base.get(name)
        return version or None

    def publish(self, wanted: Versions, changed: Collection[str]) -> None:
        """Other versions are published; ``changed`` are the names that they differ in."""
        self._wanted = wanted
        for name in changed:
            # What is published again one day at this version need not be acknowledged again.
            if name not in wanted and name in self._base:
                self._over.setdefault(name, self._base[name])
        self._settle(changed)

    def take(self, versions: Versions) -> None:
        """The proxy has these versions now; an empty one means that it let a name go."""
        if not self and versions == self._wanted:
            self._base = self._wanted
            self.pending.clear()
            return
        self._over.update(versions)
        self._settle(versions)

    def _settle(self, names: Iterable[str]) -> None:
        for name in names:
            wanted = self._wanted.get(name)
            held = self.get(name)
            if held == wanted or (wanted is None and not self._whole):
                self.pending.discard(name)
            else:
                self.pending.add(name)
        if not self.pending:
            # Up to date: what is published says it all, for this proxy as for others.
            self._base = self._wanted
            self._over = {n: v for n, v in self._over.items() if v and n not in self._wanted}
