"""What people and programs do to a folder of configuration while it is served from."""

import asyncio
import shutil
import signal
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.control_world import ROUTE, ControlWorld, until

pytestmark = pytest.mark.e2e

EDITS = 3_000
SECONDS = 3.0


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ControlWorld]:
    async with ControlWorld(tmp_path, return_grace_s=0.5) as world:
        await world.up("n1", "n2")
        yield world


def edit_without_pause(path: Path, done: threading.Event) -> None:
    """A thousand edits a second, each written in two parts and in place; the last is whole."""
    began = time.monotonic()
    for number in range(EDITS):
        text = ROUTE % (1 + number % 2) + f"  timeout: {1 + number % 50}s\n"
        with path.open("w") as file:
            file.write(text[:60])
            file.flush()
            file.write(text[60:])
        late_s = began + SECONDS * number / EDITS - time.monotonic()
        if late_s > 0:
            time.sleep(late_s)
    done.set()


async def test_a_thousand_edits_a_second_are_few_configurations_and_the_last_one_counts(
    world: ControlWorld,
) -> None:
    before = await world.generation()
    done = threading.Event()
    async with world.under_load():
        writing = asyncio.to_thread(edit_without_pause, world.config / "route.yaml", done)
        slowest_s = 0.0
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(writing)
            while not done.is_set():
                began = time.monotonic()
                await world.generation()
                slowest_s = max(slowest_s, time.monotonic() - began)
                await asyncio.sleep(0.05)

        async def last() -> bool:
            generation = await world.admin("/v1/generation")
            (route,) = (await world.admin("/v1/objects/route"))["items"]
            wanted = [{"version": 2}], f"{1 + (EDITS - 1) % 50}s"
            return generation["accepted"] and (
                (route["spec"]["split"], route["spec"]["timeout"]) == wanted
            )

        await until(last)
        await world.serving("2")
    # One reading every half second at the most while the folder never rests.
    assert await world.generation() - before <= 3 * SECONDS / 0.5
    assert slowest_s < 2


async def test_a_folder_that_is_deleted_changes_nothing_until_it_is_back(
    world: ControlWorld,
) -> None:
    kept = world.config.with_name("kept")
    async with world.under_load():
        shutil.copytree(world.config, kept)
        shutil.rmtree(world.config)

        async def told() -> bool:
            found = await world.admin("/v1/problems")
            return not found["accepted"] and bool(found["unreadable"])

        await until(told)
        assert "No such file" in (await world.admin("/v1/problems"))["unreadable"][0]
        await world.stop(signal.SIGKILL)
        # Not even a restart needs the folder.
        await world.start()
        await until(told)

        async def whole() -> bool:
            return len(await world.hosts()) == 2 and await world.infer() == "1"

        await until(whole)
        kept.rename(world.config)

        async def accepted() -> bool:
            return bool((await world.admin("/v1/generation"))["accepted"])

        await until(accepted)
        world.route_to(2)
        await world.serving("2")


async def test_an_emptied_folder_and_one_that_becomes_a_file_change_nothing(
    world: ControlWorld,
) -> None:
    async def refused() -> bool:
        return not (await world.admin("/v1/generation"))["accepted"]

    kept = world.config.with_name("kept")
    async with world.under_load():
        shutil.copytree(world.config, kept)
        for path in world.config.iterdir():
            path.unlink()
        await until(refused)
        assert await world.infer() == "1"
        world.config.rmdir()
        world.config.write_text("not a folder")
        await until(refused)
        assert await world.infer() == "1"
        world.config.unlink()
        kept.rename(world.config)

        async def accepted() -> bool:
            return bool((await world.admin("/v1/generation"))["accepted"])

        await until(accepted)
