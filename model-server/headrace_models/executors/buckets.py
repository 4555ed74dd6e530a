"""Groups texts of like length, so that little of a padded batch is padding. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

TOKENS_PER_PASS = 4096
"""Padded tokens of one forward pass: bounds the memory of a batch, whatever is asked."""
STEP = 16
"""Texts whose lengths round up to the same multiple of this share a bucket."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Texts to run in one pass, by their place in the batch, padded to ``length`` tokens."""

    members: tuple[int, ...]
    length: int


@dataclass(frozen=True, slots=True)
class Tokens:
    """How many tokens of a set of passes mean something, and how many were computed."""

    useful: int
    computed: int

    @property
    def ratio(self) -> float:
        """Useful part, 1.0 when nothing was computed."""
        return self.useful / self.computed if self.computed else 1.0


def plan(lengths: Sequence[int]) -> tuple[Bucket, ...]:
    """Buckets that hold every text once. Each is padded to its own longest, not to a step."""
    groups: dict[int, list[int]] = {}
    for index, length in enumerate(lengths):
        groups.setdefault(-(-length // STEP), []).append(index)
    return tuple(
        bucket for _, members in sorted(groups.items()) for bucket in _split(members, lengths)
    )


def one(lengths: Sequence[int]) -> tuple[Bucket, ...]:
    """Everything padded to the longest: what ``plan`` is measured against."""
    return tuple(_split(list(range(len(lengths))), lengths))


def count(buckets: Sequence[Bucket], lengths: Sequence[int]) -> Tokens:
    """Tokens that running these buckets takes."""
    return Tokens(
        useful=sum(lengths),
        computed=sum(bucket.length * len(bucket.members) for bucket in buckets),
    )


def _split(members: list[int], lengths: Sequence[int]) -> list[Bucket]:
    """Buckets of at most TOKENS_PER_PASS padded tokens, or of a single longer text."""
    longest = max((lengths[index] for index in members), default=0)
    size = max(1, TOKENS_PER_PASS // max(1, longest))
    return [_bucket(members[at : at + size], lengths) for at in range(0, len(members), size)]


def _bucket(members: list[int], lengths: Sequence[int]) -> Bucket:
    return Bucket(tuple(members), max(lengths[index] for index in members))
