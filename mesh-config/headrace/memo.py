"""Results kept by what they were made from, so that an edit of one object derives one object anew.

Inputs are compared by identity: values of a mesh are frozen, the loader gives the same object for
the same text, and comparing thousands of them in depth would cost as much as deriving them again.
"""

from collections.abc import Callable, Hashable
from typing import TypeVar

from headrace import limits

T = TypeVar("T")


class Memo:
    """The last result of every slot, given again while its inputs are the very same objects."""

    def __init__(self, limit: int = limits.MEMO_SLOTS) -> None:
        self._limit = limit
        self._kept: dict[Hashable, tuple[tuple[object, ...], object]] = {}
        self.built = 0
        """Results that had to be made."""

    def __repr__(self) -> str:
        """One line for operators."""
        return f"<Memo slots={len(self._kept)} built={self.built}>"

    def get(self, slot: Hashable, inputs: tuple[object, ...], build: Callable[[], T]) -> T:
        """Result of a slot; ``build`` makes it where one input is another object than before.

        The inputs are held as long as the result is, so that no other object can pass for one.
        """
        kept = self._kept.get(slot)
        if kept is not None and _same(kept[0], inputs):
            return kept[1]  # type: ignore[return-value]
        self.built += 1
        result = build()
        if len(self._kept) >= self._limit:
            # Slots of what is gone are never asked for again; which they are is not worth knowing.
            self._kept.clear()
        self._kept[slot] = (inputs, result)
        return result


def _same(before: tuple[object, ...], now: tuple[object, ...]) -> bool:
    if len(before) != len(now):
        return False
    for one, other in zip(before, now, strict=True):  # noqa: SIM110 - this is twice as fast
        if one is not other:
            return False
    return True
