"""What a command says: data on standard output, everything else on standard error."""

import enum
import os
import sys
from typing import TextIO

RED, YELLOW, BLUE, BOLD = "31", "33", "34", "1"


class Exit(enum.IntEnum):
    """Exit statuses of every command."""

    OK = 0
    NEGATIVE = 1
    """The command worked; its answer is no: a difference, a problem, a proxy behind."""
    USAGE = 2
    UNREACHABLE = 3
    """The control server does not answer."""


class CommandError(Exception):
    """Why a command cannot go on: what, where, and what to do about it."""

    def __init__(
        self, what: str, *, where: str = "", remedy: str = "", status: Exit = Exit.NEGATIVE
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.remedy = remedy
        self.status = status

    def __str__(self) -> str:
        where = f" ({self.where})" if self.where else ""
        remedy = f"\n  {self.remedy}" if self.remedy else ""
        return f"{self.what}{where}{remedy}"


class Console:
    """The two streams of a command, and whether each may be coloured."""

    def __init__(
        self,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
        *,
        color: bool = True,
    ) -> None:
        self._stdout = stdout or sys.stdout
        self._stderr = stderr or sys.stderr
        self._color = color and not os.environ.get("NO_COLOR")

    def __repr__(self) -> str:
        return f"Console(color={self._color})"

    def data(self, text: str) -> None:
        """What was asked for."""
        if text:
            print(text.rstrip("\n"), file=self._stdout, flush=True)

    def say(self, text: str) -> None:
        """Progress, advice and complaints."""
        print(text, file=self._stderr, flush=True)

    def paint(self, text: str, color: str) -> str:
        """Text for standard output, coloured where a person reads it."""
        if not self._color or not self._stdout.isatty():
            return text
        return f"\x1b[{color}m{text}\x1b[0m"
