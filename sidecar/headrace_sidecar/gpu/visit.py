"""``Visit``: one request inside the node, counted in and out whatever happens to it."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Final

from headrace.refusals import Refusal, Refused
from headrace_sidecar.gpu.serving import Outcome, Served, Serving

_RAN_NOTHING: Final = frozenset(
    {Refusal.OVERLOADED, Refusal.INVALID_VALUE, Refusal.NOT_IMPLEMENTED}
)
"""Refusals by Triton that say nothing about whether the model works."""


def outcome_of(error: BaseException | None) -> Outcome:
    """How a request ended that left with this error, None where it was answered."""
    if error is None:
        return Outcome.COMPLETED
    if isinstance(error, asyncio.CancelledError):
        return Outcome.ABANDONED
    if isinstance(error, Refused):
        if error.refusal in _RAN_NOTHING:
            return Outcome.REFUSED
        if error.refusal is Refusal.CLIENT_GONE:
            return Outcome.ABANDONED
    return Outcome.FAILED


class Visit:
    """Use as ``with Visit(serving, served, tier=…, clock=…):`` around the work."""

    __slots__ = ("_clock", "_served", "_serving", "_stamped", "_started_s", "_tier")

    def __init__(
        self,
        serving: Serving,
        served: Served,
        *,
        tier: str,
        clock: Callable[[], float],
        stamped: bool = False,
    ) -> None:
        self._serving = serving
        self._served = served
        self._tier = tier
        self._stamped = stamped
        self._clock = clock
        self._started_s = 0.0

    def __enter__(self) -> None:
        """Count in; Refused where there is no room or no readiness."""
        self._started_s = self._clock()
        self._serving.begin(self._served, tier=self._tier, now_s=self._started_s)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Count out, by the error it left with."""
        del kind, traceback
        self._serving.end(
            self._served,
            outcome_of(error),
            started_s=self._started_s,
            now_s=self._clock(),
            stamped=self._stamped,
        )
