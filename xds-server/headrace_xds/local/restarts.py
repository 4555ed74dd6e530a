"""When a program that ended is started again. Pure: a table and one rule."""

from headrace import limits


def short_lives_after(lived_s: float, *, before: int) -> int:
    """Short lives in a row, once one more life of this length has ended."""
    return before + 1 if lived_s < limits.LOCAL_SETTLED_S else 1


def delay_s(short_lives: int) -> float:
    """Wait before the next start, after so many short lives in a row (at least one)."""
    delays = limits.LOCAL_RESTART_DELAYS_S
    return delays[min(short_lives, len(delays)) - 1]
