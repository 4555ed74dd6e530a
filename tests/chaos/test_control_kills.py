"""The control server is killed again and again amid edits of its files: callers notice nothing."""

import asyncio
import json
import random
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headrace_xds.app import LEDGER_FILE
from headrace_xds.configuration import LAST_GOOD_FILE
from headrace_xds.ledger import Ledger
from tests.fakes.control_process import zygote
from tests.fakes.control_world import MODEL, ControlWorld, until

pytestmark = [pytest.mark.chaos]

KILLS = 20
SERVED_S = 0.4
"""Longest time that it lives after it listens."""
EDIT_PERIOD_S = 0.15
LOOK_PERIOD_S = 0.05
VERSIONS = {"echo@1", "echo@2"}


class Editor:
    """Somebody who edits files all the time, also in ways that do not hold."""

    def __init__(self, world: ControlWorld, rng: random.Random) -> None:
        self._world, self._rng = world, rng

    async def run(self) -> None:
        while True:
            self.edit()
            await asyncio.sleep(EDIT_PERIOD_S)

    def edit(self) -> None:
        match self._rng.randrange(4):
            case 0:
                self._world.write("route.yaml", "kind: [")
            case 1 | 2:
                self._world.route_to(self._rng.choice((1, 2)))
            case _:
                threads = f"executor: identity, threads: {self._rng.randint(1, 9)}}}"
                self._world.write("model.yaml", MODEL.replace("executor: identity}", threads))


class Watcher:
    """Somebody who counts the endpoints that Envoy has."""

    def __init__(self, world: ControlWorld) -> None:
        self.fewest = 2
        self._world = world

    async def run(self) -> None:
        while True:
            for version in (1, 2):
                self.fewest = min(self.fewest, len(await self._world.hosts(version)))
            await asyncio.sleep(LOOK_PERIOD_S)


@asynccontextmanager
async def in_the_background(*parts: Editor | Watcher) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(part.run()) for part in parts]
        yield
        for task in running:
            task.cancel()


async def live_for_a_random_time(world: ControlWorld, rng: random.Random, start_s: float) -> None:
    """Half of its lives end before it listens, the others soon after."""
    if rng.random() < 0.5:
        await world.spawn()
        await asyncio.sleep(rng.uniform(0, start_s))
    else:
        await world.start()
        await asyncio.sleep(rng.uniform(0, SERVED_S))


def check_what_is_on_disk(state: Path, copy: Path) -> None:
    """The ledger is whole and forgot no node, and so is the last good configuration."""
    assert list(state.glob("*unreadable*")) == []
    shutil.copytree(state, copy)
    ledger = Ledger.open(copy / LEDGER_FILE)
    ledger.close()
    assert ledger.record is not None
    held = {node.info.name: {h.name for h in node.held} for node in ledger.record.nodes}
    assert held == {"n1": VERSIONS, "n2": VERSIONS}
    assert json.loads((copy / LAST_GOOD_FILE).read_text())


async def test_killing_the_control_server_amid_edits_harms_no_request_and_no_ledger(
    tmp_path: Path,
) -> None:
    rng = random.Random(7)
    async with zygote() as source, ControlWorld(tmp_path, launch=source.launch) as world:
        await world.up()
        await until(world.is_whole)
        watcher = Watcher(world)
        await world.stop(signal.SIGKILL)
        start_s = await until_started(world)
        async with world.under_load(), in_the_background(Editor(world, rng), watcher):
            for number in range(KILLS):
                await world.stop(signal.SIGKILL)
                check_what_is_on_disk(world.state, tmp_path / f"copy-{number}")
                await live_for_a_random_time(world, rng, start_s)
        assert watcher.fewest == 2

        await world.stop(signal.SIGKILL)
        world.write("model.yaml", MODEL)
        world.route_to(2)
        await world.start()
        await world.serving("2")
        await until(world.is_whole)
        assert [node.held.keys() for node in world.nodes.values()] == [VERSIONS, VERSIONS]


async def until_started(world: ControlWorld) -> float:
    """Start it; the seconds that took."""

    async def started() -> bool:
        await world.start()
        return True

    return await until(started)
