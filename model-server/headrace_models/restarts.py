"""When a tritonserver that ended is started again. Pure: a table and two rules."""

from dataclasses import dataclass

from headrace import limits


@dataclass(frozen=True, slots=True)
class Ended:
    """How one life of a tritonserver ended."""

    lived_s: float
    answered: bool
    """It answered at least once."""
    requested: bool
    """Somebody asked for the restart."""


@dataclass(frozen=True, slots=True)
class Restart:
    """What to do: wait so long, then start; ``short_lives`` is carried to the next decision."""

    delay_s: float
    short_lives: int


def after(ended: Ended, *, short_lives: int) -> Restart:
    """Decide on the restart after a life, given how many short ones came before it."""
    if ended.requested:
        return Restart(delay_s=0.0, short_lives=0)
    settled = ended.answered and ended.lived_s >= limits.TRITON_SETTLED_S
    before = 0 if settled else short_lives
    delays = limits.TRITON_RESTART_DELAYS_S
    return Restart(delay_s=delays[min(before, len(delays) - 1)], short_lives=before + 1)
