"""The supervisor with a tritonserver that is silent, stubborn or dead on arrival."""

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from headrace import limits
from headrace_models import layout
from headrace_models.binaries import Binaries
from headrace_models.command import Interpreter
from headrace_models.supervisor import Supervisor
from tests.fakes import stubborn_triton

WAIT_S = 30.0


@pytest.fixture
def places() -> Iterator[layout.Layout]:
    """Paths short enough for sockets, wherever pytest keeps its own."""
    with tempfile.TemporaryDirectory(prefix="hr-s") as folder:
        made = layout.layout(Path(folder), Path(folder) / "agent.sock")
        yield made


@contextlib.asynccontextmanager
async def supervised(
    places: layout.Layout, mood: str, lines: list[str]
) -> AsyncIterator[Supervisor]:
    """A running supervisor of a stand-in; cancelled at the end, as its program does it."""
    server = places.state_dir / "tritonserver"
    server.write_text(f'#!/bin/sh\nexec {sys.executable} {stubborn_triton.__file__} "$@"\n')
    server.chmod(0o700)
    parts = [server]
    for name in ("library", "api", "stub", "caches"):
        parts.append(places.state_dir / name)
        parts[-1].touch()
    binaries = Binaries(*parts)
    layout.prepare(places, binaries)
    supervisor = Supervisor(
        binaries=binaries,
        layout=places,
        interpreter=Interpreter(Path(sys.prefix) / "bin", places.state_dir, Path.cwd()),
        base_environment={**os.environ, "MOOD": mood},
        metrics_port=0,
        log=lines.append,
    )
    async with asyncio.TaskGroup() as group:
        running = group.create_task(supervisor.run())
        try:
            yield supervisor
        finally:
            running.cancel()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - nothing announces what another process does
            await asyncio.sleep(0.01)


async def test_a_server_that_never_answers_is_replaced(
    places: layout.Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TRITON_START_S", 0.1)
    monkeypatch.setattr(limits, "TRITON_REPAIR_S", 0.1)
    async with supervised(places, "silent", []) as supervisor:
        await until(lambda: supervisor.status().incarnation >= 3)
        assert not supervisor.status().alive


async def test_a_server_that_dies_at_once_is_started_ever_more_slowly(
    places: layout.Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TRITON_RESTART_DELAYS_S", (0.0, 0.0, 3600.0))
    lines: list[str] = []
    async with supervised(places, "die", lines) as supervisor:
        await until(lambda: lines.count("mood die") == 3)
        assert supervisor.status().incarnation == 3


async def test_a_stubborn_server_is_killed_when_a_restart_is_asked_for(
    places: layout.Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TRITON_REPAIR_S", 0.1)
    monkeypatch.setattr(limits, "TRITON_KILL_S", 0.2)
    async with supervised(places, "answer", []) as supervisor:
        await supervisor.answering()
        first = supervisor.status()
        assert first.version == "9.99"
        supervisor.request_restart()
        await until(lambda: supervisor.status().alive and supervisor.status().pid != first.pid)
        assert supervisor.status().incarnation == first.incarnation + 1


async def test_a_stubborn_server_is_killed_at_the_deadline_of_a_shutdown(
    places: layout.Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TRITON_KILL_S", 0.2)
    async with supervised(places, "answer", []) as supervisor:
        await supervisor.answering()
        began_s = time.monotonic()
    assert time.monotonic() - began_s >= limits.TRITON_KILL_S
    assert not places.grpc_socket.exists()
