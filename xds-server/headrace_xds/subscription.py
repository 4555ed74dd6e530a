"""One type on one stream: what the client asked for, what it holds, and what it is owed.

A *dirty* name has to be looked at: its resource or its subscription changed. An *owed* name must
be answered even when nothing changed, because the client may have forgotten what it held (R6).
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass

from headrace import limits
from headrace_xds import rejections
from headrace_xds.group import Shelf
from headrace_xds.held import Held
from headrace_xds.messages import Acked, Event, Left, Nacked, Request
from headrace_xds.translate.resources import Resource
from headrace_xds.typepolicy import TypePolicy

WILDCARD = "*"
ABSENT = ""
"""Version of a name that the client was told does not exist."""
_REFUSED = "refused"
"""Held after a NACK where the client keeps nothing; equal to no version, so all is news."""
_OVERHEAD_BYTES = 128


@dataclass(frozen=True, slots=True)
class News:
    """A name the client has to hear about: its resource, or None when there is none."""

    name: str
    resource: Resource | None


@dataclass(frozen=True, slots=True)
class Batch:
    """What the next response carries."""

    resources: tuple[Resource, ...]
    removed: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of everything in it."""
        return (*(resource.name for resource in self.resources), *self.removed)

    @property
    def versions(self) -> dict[str, str]:
        """Version of everything in it; ``ABSENT`` for what is removed."""
        versions = {resource.name: resource.version for resource in self.resources}
        return {**versions, **dict.fromkeys(self.removed, ABSENT)}


_NOTHING = Batch((), ())


@dataclass(frozen=True, slots=True)
class Sent:
    """A response that was not answered yet; ``warms`` when others must wait for the answer."""

    batch: Batch
    warms: bool


Allow = Callable[[News], bool]
"""Whether news may be sent now; what may not stays dirty."""


class Subscription:
    """State of one type on one stream."""

    def __init__(self, *, type_url: str, policy: TypePolicy, shelf: Shelf) -> None:
        self.type_url = type_url
        self.policy = policy
        self.shelf = shelf
        self.wildcard = False
        self.explicit: set[str] = set()
        self.held: dict[str, Held] = {}
        self.outstanding: dict[str, Sent] = {}
        self.dirty: set[str] = set()
        self.nonce = ""
        """Of the latest response; empty until there is one."""
        self.believed: frozenset[str] = frozenset()
        """Names that were not answered because the client said that it holds them as they are."""
        self._owed: set[str] = set()
        self._bad: dict[tuple[str, str], None] = {}
        """Names and versions that the client refused, oldest first."""
        self._bisect: deque[tuple[str, ...]] = deque()
        self._returning = False
        self._doubtful: dict[str, Resource] = {}
        self._refused_whole: Mapping[str, str] = {}

    def __repr__(self) -> str:
        """One line for operators."""
        names = WILDCARD if self.wildcard else str(len(self.explicit))
        bad = sorted({name for name, _ in self._bad})
        return (
            f"{self.type_url.rpartition('.')[2]}(names={names} held={len(self.held)} "
            f"dirty={len(self.dirty)} unanswered={len(self.outstanding)} bad={bad})"
        )

    def open(self, request: Request) -> None:
        """Take the first request of the type, which alone says what the client still holds."""
        claims, versions = request.initial_versions, self.shelf.versions
        current = claims.keys() if claims == versions else _equal(claims, versions)
        if len(current) == len(versions):
            self.held = self.shelf.held.copy()
        else:
            self.held = {name: self.shelf.held[name] for name in current}
        self.held.update((n, Held(version)) for n, version in claims.items() if n not in current)
        self._returning = request.returning
        if self.policy.legacy_wildcard and not request.subscribe and not request.unsubscribe:
            self.wildcard = True
        self._begin(request.subscribe, claims if self.policy.trusts_claims else {})
        if self.wildcard:
            self.dirty.update(versions.keys() - current, claims.keys() - current)
        elif not claims.keys() <= self.explicit:
            self.held = {name: held for name, held in self.held.items() if self.wants(name)}

    def _begin(self, names: Iterable[str], trusted: Mapping[str, str]) -> None:
        """Subscribe for the first time: what the client is trusted to hold is not answered (R6)."""
        asked = set(names)
        if WILDCARD in asked:
            asked.remove(WILDCARD)
            self.wildcard = True
        self.explicit |= asked
        self._owed |= asked - trusted.keys()
        believed = {name for name in asked & trusted.keys() if self.held[name].resource is not None}
        self.dirty |= asked - believed
        self.believed = frozenset(believed)

    def doubt(self) -> None:
        """Answer as well what the client was trusted to hold when it began."""
        for name in self.believed & self.explicit:
            self.owe(name)
        self.believed = frozenset()

    def subscribe(self, names: Iterable[str]) -> None:
        """Add names; each is answered, since the client may have forgotten what it held (R6)."""
        for name in names:
            if name == WILDCARD:
                self.wildcard = True
                self.dirty.update(self.shelf.resources)
            else:
                self.explicit.add(name)
                self.owe(name)

    def unsubscribe(self, names: Iterable[str]) -> tuple[Left, ...]:
        """Drop names; under a wildcard the client must be told what becomes of each (R10)."""
        left = False
        for name in names:
            if name == WILDCARD:
                left = self.wildcard = False
                left = True
                continue
            self.explicit.discard(name)
            self._owed.discard(name)
            self.held.pop(name, None)
            if self.wildcard:
                self.owe(name)
        if left:
            self.held = {name: held for name, held in self.held.items() if name in self.explicit}
            self.dirty &= self.explicit
            self._owed &= self.explicit
        return (Left(self.type_url),) if left else ()

    def wants(self, name: str) -> bool:
        """Whether the client subscribes to a name."""
        return self.wildcard or name in self.explicit

    def changed(self, names: frozenset[str]) -> None:
        """The shelf changed under these names."""
        self.dirty |= names if self.wildcard else names & self.explicit

    def owe(self, name: str) -> None:
        """Send a name again even though the client seems to hold it."""
        self.dirty.add(name)
        self._owed.add(name)

    def forgive(self, name: str) -> None:
        """Offer a name again though the client refused it."""
        self._bad = {bad: None for bad in self._bad if bad[0] != name}
        self._refused_whole = {}
        self.dirty.add(name)

    def is_bad(self, name: str) -> bool:
        """Whether the client refused the version that is on the shelf."""
        resource = self.shelf.resources.get(name)
        version = ABSENT if resource is None else resource.version
        return (name, version) in self._bad

    @property
    def may_have_news(self) -> bool:
        """False when there is nothing to look at; quick, as it is asked at every event."""
        return bool(self.dirty or self._bisect) or self._waits_for_nothing()

    def next_batch(self, allow: Allow) -> Batch | None:
        """What to send next, None when nothing may be sent; changes nothing but clean names."""
        if self.outstanding and not self.policy.single:
            return None
        while self._bisect:
            names = self._bisect.popleft()
            if batch := self._collect(names, allow):
                return batch
        batch = self._collect(sorted(self.dirty), allow) if self.dirty else None
        if batch is None:
            return _NOTHING if self._waits_for_nothing() else None
        return None if batch.versions == self._refused_whole else batch

    def content(self, batch: Batch) -> tuple[Resource, ...]:
        """Resources of the response that carries a batch: with whole types all that is to stay."""
        if not self.policy.whole:
            return batch.resources
        stays = {
            name: held.resource for name, held in self.held.items() if held.resource is not None
        }
        stays.update((resource.name, resource) for resource in batch.resources)
        for name in batch.removed:
            stays.pop(name, None)
        return tuple(stays[name] for name in sorted(stays))

    def sent(self, nonce: str, batch: Batch) -> None:
        """A batch was put into a response."""
        if self.policy.single:
            # What was sent under the name before is replaced: the client will not answer it.
            for old in [n for n, s in self.outstanding.items() if s.batch.names == batch.names]:
                del self.outstanding[old]
        warms = self.policy.warms and bool(batch.resources)
        warms = warms or not self._owed.isdisjoint(batch.names)
        self.nonce = nonce
        self.outstanding[nonce] = Sent(batch, warms)
        self.dirty.difference_update(batch.names)
        self._owed.difference_update(batch.names)

    def acknowledge(self, nonce: str) -> tuple[Event, ...]:
        """The client took a response."""
        sent = self.outstanding.pop(nonce, None)
        if sent is None:
            return ()
        self._returning = False
        return self._taken(sent.batch, frozenset(sent.batch.names))

    def refuse(self, nonce: str, message: str) -> tuple[Event, ...]:
        """The client refused a response: remember the culprits, offer the others alone (R3)."""
        sent = self.outstanding.pop(nonce, None)
        if sent is None:
            return ()
        names = sent.batch.names
        culprits = rejections.culprits(names, message, partial=self.policy.partial)
        if not culprits:
            self.dirty.update(names)
            if self.policy.whole and self._returning:
                # A part would delete the rest, which the client may hold: wait for a change.
                self._refused_whole = sent.batch.versions
                return (Nacked(self.type_url, {}, message),)
            self._bisect.extendleft(reversed(rejections.halves(names)))
            return ()
        versions = sent.batch.versions
        refused = {name: versions[name] for name in culprits}
        for name, version in refused.items():
            self._mark_bad(name, version)
        self._doubt(sent.batch, refused)
        others = frozenset(names).difference(culprits)
        return (Nacked(self.type_url, refused, message), *self._taken(sent.batch, others))

    def _doubt(self, batch: Batch, refused: Mapping[str, str]) -> None:
        """Remember what must not be left out: the client may hold another version of it.

        After a reconnect a SotW client does not say what it holds. Such a resource goes along
        with the next change though it was refused; without it the client would delete its own.
        """
        for resource in batch.resources if self.policy.whole else ():
            unknown = self._returning and resource.name not in self.held
            if resource.name in refused and (unknown or resource.name in self._doubtful):
                self._doubtful[resource.name] = resource
        self._returning = False

    def _waits_for_nothing(self) -> bool:
        """Whether the client must be told, by an empty response, that there is nothing at all."""
        silent = self.policy.whole and self.wildcard and not self.nonce
        return silent and not self.dirty and self.shelf.published

    def _taken(self, batch: Batch, names: frozenset[str]) -> tuple[Event, ...]:
        """Record that the client holds these parts of a batch now."""
        taken = [resource for resource in batch.resources if resource.name in names]
        gone = [name for name in batch.removed if name in names]
        for resource in taken:
            if self.wants(resource.name):
                self.held[resource.name] = Held(resource.version, resource)
        for name in names:
            self._doubtful.pop(name, None)
        for name in gone:
            if name in self.explicit:
                self.held[name] = Held(ABSENT)
            else:
                self.held.pop(name, None)
        # The client may have turned away and come back while this was under way, and what
        # changed in between went by unnoticed: look at each name once more.
        self.dirty.update(name for name in names if self._news(name) is not None)
        versions = {resource.name: resource.version for resource in taken}
        versions.update(dict.fromkeys(gone, ABSENT))
        return (Acked(self.type_url, versions),) if versions else ()

    def _mark_bad(self, name: str, version: str) -> None:
        if not self.policy.keeps_previous:
            # A sidecar may well load tomorrow what it could not load today: membership decides
            # when it is asked again, and what it was asked before the last time does not count.
            self._bad = {bad: None for bad in self._bad if bad[0] != name}
        self._bad.pop((name, version), None)
        if len(self._bad) >= limits.NACKS_PER_STREAM:
            del self._bad[next(iter(self._bad))]
        self._bad[name, version] = None
        if not self.policy.keeps_previous:
            self.held[name] = Held(_REFUSED)

    def _collect(self, names: Iterable[str], allow: Allow) -> Batch | None:
        """As much news about these names as one response takes."""
        resources: list[Resource] = []
        removed: list[str] = []
        size_bytes = 0
        for news in self._due(names, allow):
            size_bytes += _OVERHEAD_BYTES
            if news.resource is None:
                removed.append(news.name)
            else:
                resources.append(news.resource)
                size_bytes += len(news.resource.body)
            full = size_bytes >= limits.RESPONSE_RESOURCE_BYTES and not self.policy.whole
            if self.policy.single or full:
                break
        if not resources and not removed:
            return None
        told = {*removed, *(resource.name for resource in resources)}
        resources += (doubted for name, doubted in self._doubtful.items() if name not in told)
        return Batch(tuple(resources), tuple(removed))

    def _due(self, names: Iterable[str], allow: Allow) -> Iterator[News]:
        """News that may be sent now; names without any are clean afterwards."""
        busy = {name for sent in self.outstanding.values() for name in sent.batch.names}
        for name in names:
            if self.wants(name) and self.shelf.hides(name):
                continue
            news = self._news(name)
            if news is None:
                self.dirty.discard(name)
                self._owed.discard(name)
            elif (name in busy or len(busy) < self.policy.max_in_flight) and allow(news):
                yield news

    def _news(self, name: str) -> News | None:
        """What the client has to hear about a name."""
        if not self.wants(name):
            return None
        resource = self.shelf.resources.get(name)
        known = self._known(name)
        owed = name in self._owed
        if known is not None and known == self.shelf.spared.get(name) and not owed:
            return None
        if resource is None:
            return self._absence(name, known, owed=owed)
        if (name, resource.version) in self._bad:
            return self._last_good(name, resource) if owed else None
        return None if known == resource.version and not owed else News(name, resource)

    def _absence(self, name: str, known: str | None, *, owed: bool) -> News | None:
        if not self.policy.removable or ((name, ABSENT) in self._bad and not owed):
            return None
        told = known == ABSENT or (known is None and name not in self.explicit)
        return None if told and not owed else News(name, None)

    def _last_good(self, name: str, refused: Resource) -> News | None:
        """Answer who asks again for what it refused: with the version before, else with none."""
        held = self.held.get(name)
        if held is not None and held.resource is not None and held.version != refused.version:
            return News(name, held.resource)
        return News(name, None) if held is None and self.policy.removable else None

    def _known(self, name: str) -> str | None:
        """Version the client was sent last, None when it never heard of the name."""
        for sent in self.outstanding.values():
            for resource in sent.batch.resources:
                if resource.name == name:
                    return resource.version
            if name in sent.batch.removed:
                return ABSENT
        held = self.held.get(name)
        return None if held is None else held.version


def _equal(claims: Mapping[str, str], versions: Mapping[str, str]) -> Set[str]:
    """Names that are claimed at the version that is published."""
    return {name for name, version in claims.items() if versions.get(name) == version}
