"""One run of ``envoy --mode validate``: reads a configuration in full, opens no socket."""

import asyncio
import re
import tempfile
from pathlib import Path
from typing import Final

from headrace import limits

_PREFIX: Final = re.compile(r"^\[[^]]*\]\[[^]]*\]\[critical\]\[[^]]*\] \[[^]]*\] ")
_ABOUT: Final = re.compile(r"^error initializing configuration '[^']*': ")


class NoVerdict(Exception):
    """Envoy neither took nor refused a configuration; the text says what it did."""


class EnvoyCheck:
    """Runs Envoy, ``limits.GATE_WORKERS`` times at once at most."""

    def __init__(self, binary: Path, *, patience_s: float = limits.GATE_CHECK_S) -> None:
        self.runs = 0
        """Runs since the start."""
        self._binary = binary
        self._patience_s = patience_s
        self._workers = asyncio.Semaphore(limits.GATE_WORKERS)

    async def refusal(self, bootstrap: bytes) -> str | None:
        """Why Envoy refuses a serialised Bootstrap, None when it takes it; raises ``NoVerdict``."""
        async with self._workers:
            self.runs += 1
            with tempfile.NamedTemporaryFile(prefix="headrace-gate-", suffix=".pb") as file:
                await asyncio.to_thread(Path(file.name).write_bytes, bootstrap)
                status, errors = await self._run(file.name)
                if status < 0:
                    # A signal may come from outside; a configuration that kills, kills again.
                    self.runs += 1
                    status, errors = await self._run(file.name)
        return _reading(status, errors)

    async def _run(self, path: str) -> tuple[int, str]:
        """Exit status of one Envoy, negative for a signal, and what it wrote."""
        arguments = ("--mode", "validate", "-c", path, "--log-level", "critical")
        try:
            process = await asyncio.create_subprocess_exec(
                self._binary,
                *arguments,
                # Without this a fork runs gRPC's handlers in the child, which may die of them.
                # Spawned instead, it inherits nothing all the same: Python's files are not.
                close_fds=False,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise NoVerdict(f"{self._binary.name} cannot be run: {error.strerror}") from error
        try:
            async with asyncio.timeout(self._patience_s):
                _, errors = await process.communicate()
        except TimeoutError:
            raise NoVerdict(f"Envoy gave no verdict within {self._patience_s:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode or 0, errors.decode(errors="replace")


def _reading(status: int, errors: str) -> str | None:
    if status == 0:
        return None
    said = _ABOUT.sub("", _PREFIX.sub("", errors.strip().splitlines()[0])) if errors else ""
    if status < 0:
        return f"Envoy dies of signal {-status} reading it; {said}".rstrip("; ")
    return said[: limits.GATE_TEXT_LENGTH] or f"Envoy ends with status {status} and says nothing"
