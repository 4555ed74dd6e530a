"""What compiling keeps, so that an edit reads, resolves and encodes what it changed."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar

from headrace import limits
from headrace.config.load import Readings
from headrace.memo import Memo

T = TypeVar("T")


class FragmentCache:
    """Encoded parts, and what they come from.

    Least recently used fragments go first; a key must hold everything its value depends on.
    """

    def __init__(self, limit: int = limits.FRAGMENTS) -> None:
        self._limit = limit
        self._kept: OrderedDict[Hashable, object] = OrderedDict()
        self.readings = Readings()
        """Documents as they were read."""
        self.memo = Memo()
        """Parts of the IR by the objects they were made from, and resources by parts of the IR."""
        self.built = 0
        """Fragments that were not found and had to be built."""

    @property
    def size(self) -> int:
        """Fragments that are kept. (A length would make an empty cache false.)"""
        return len(self._kept)

    def get(self, key: Hashable, build: Callable[[], T]) -> T:
        """Fragment of a key, built when it is not kept."""
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]  # type: ignore[return-value]
        self.built += 1
        fragment = build()
        self._kept[key] = fragment
        if len(self._kept) > self._limit:
            self._kept.popitem(last=False)
        return fragment
