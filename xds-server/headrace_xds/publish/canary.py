"""The canary proxy: everybody else waits for what it says of a configuration.

It fails closed. As long as the canary is away, or says nothing, the others keep what they have,
until it acknowledges or an operator releases them.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

from headrace import limits
from headrace_xds.translate.resources import (
    CLUSTER,
    EXTENSION,
    LISTENER,
    ROUTES,
    RUNTIME,
    SCOPES,
    Resource,
)

STAGED: Final = (CLUSTER, LISTENER, SCOPES, ROUTES, EXTENSION, RUNTIME)
"""Types that wait for the canary: all that is compiled from the configuration.

Endpoints say which nodes live and secrets expire: neither may wait for anybody.
"""


class Canary:
    """Where the others stand: waiting since when, and what was proven last."""

    def __init__(self, node: str, proven: str = "") -> None:
        self.node = node
        """Node id of the canary, empty where there is none."""
        self.proven = proven
        self.waiting_since_s: float | None = None
        self._digest = ""
        self._warned = False

    def __repr__(self) -> str:
        """One line for operators."""
        return f"<Canary {self.node!r} waiting={self.is_waiting}>"

    @property
    def is_waiting(self) -> bool:
        """Whether the others wait for it."""
        return self.waiting_since_s is not None

    def begin(self, digest: str, *, now_s: float) -> None:
        """There is something new; what was proven before, even before a restart, waits for none."""
        self._digest = digest
        if digest == self.proven:
            self.waiting_since_s = None
        elif self.waiting_since_s is None:
            self.waiting_since_s, self._warned = now_s, False

    def end(self) -> None:
        """The canary took it, or an operator spoke in its place."""
        self.proven, self.waiting_since_s = self._digest, None

    def is_late(self, *, now_s: float) -> bool:
        """True once, when the others have waited longer than a healthy proxy takes."""
        if self.waiting_since_s is None or self._warned:
            return False
        self._warned = now_s - self.waiting_since_s >= limits.CANARY_S
        return self._warned


def digest(published: Iterable[tuple[str, str, Mapping[str, Resource]]]) -> str:
    """Digest of resources by group and type: equal for equal ones, whatever their order."""
    found = hashlib.blake2b(digest_size=16)
    for group, type_url, resources in sorted(published, key=lambda item: item[:2]):
        for name in sorted(resources):
            found.update(f"{group}\n{type_url}\n{name}\n{resources[name].version}\n".encode())
    return found.hexdigest()
