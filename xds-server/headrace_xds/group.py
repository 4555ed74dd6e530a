"""What is published to a group of proxies: one shelf of resources a type."""

from collections.abc import Mapping
from types import MappingProxyType

from headrace_xds.held import Held
from headrace_xds.translate.resources import Resource
from headrace_xds.typepolicy import POLICIES

_NOTHING: Mapping[str, Resource] = MappingProxyType({})


class Shelf:
    """Resources of one type. Until the first ``replace`` nothing is known, so nothing is said."""

    def __init__(self, *, published: bool = False) -> None:
        self.resources: Mapping[str, Resource] = _NOTHING
        self.withheld: frozenset[str] = frozenset()
        self.spared: Mapping[str, str] = {}
        """Versions that are not sent any more; a client that has one keeps it."""
        self.published = published
        self._versions: dict[str, str] | None = None
        self._held: dict[str, Held] | None = None

    @property
    def versions(self) -> dict[str, str]:
        """Versions by name; a thousand proxies that come back compare their claims with it."""
        if self._versions is None:
            self._versions = {name: found.version for name, found in self.resources.items()}
        return self._versions

    @property
    def held(self) -> dict[str, Held]:
        """What a client holds that is up to date; to be copied."""
        if self._held is None:
            self._held = {
                name: Held(found.version, found) for name, found in self.resources.items()
            }
        return self._held

    def hides(self, name: str) -> bool:
        """True while a name must not be answered, neither with a resource nor as absent."""
        return not self.published or name in self.withheld

    def replace(self, resources: Mapping[str, Resource]) -> frozenset[str]:
        """Put other resources on the shelf; returns the names that are different now."""
        before, self.resources = self.resources, dict(resources)
        self.published = True
        self._versions = self._held = None
        changed = {
            name
            for name, resource in resources.items()
            if (old := before.get(name)) is None or old.version != resource.version
        }
        changed.update(before.keys() - resources.keys())
        return frozenset(changed)


_UNSERVED = Shelf(published=True)


class Group:
    """Shelves of one group."""

    def __init__(self) -> None:
        self._shelves = {type_url: Shelf() for type_url in POLICIES}

    @property
    def published(self) -> bool:
        """Whether anything was ever published to the group."""
        return any(shelf.published for shelf in self._shelves.values())

    def shelf(self, type_url: str) -> Shelf:
        """Shelf of a type; the same object for ever, and an empty one for an unserved type."""
        return self._shelves.get(type_url, _UNSERVED)
