"""A node leaves without losing a request, on a virtual clock."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headrace import limits
from headrace_sidecar.gpu.drain import Drain, Phase
from tests.fakes.virtual_clock import now, run


class Door:
    def __init__(self) -> None:
        self.leaving = False
        self.draining = False
        self.in_flight = 0


@asynccontextmanager
async def leaving(door: Door) -> AsyncIterator[tuple[Drain, asyncio.Task[None], list[float]]]:
    told: list[float] = []
    drain = Drain(
        door,
        leave=lambda: told.append(now()),
        grace_s=limits.DRAIN_GRACE_S,
        deadline_s=limits.DRAIN_S,
        now=now,
    )
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(drain.run())
        await asyncio.sleep(10.0)
        assert drain.phase is Phase.SERVING
        drain.ask()
        yield drain, running, told


def test_health_says_no_before_anything_is_refused() -> None:
    async def main() -> None:
        door = Door()
        async with leaving(door) as (drain, _, told):
            await asyncio.sleep(limits.DRAIN_GRACE_S - 0.1)
            assert told == [10.0]
            assert (door.leaving, door.draining) == (True, False)
            assert drain.phase is Phase.LEAVING
            await asyncio.sleep(0.2)
            assert door.draining

    run(main)


def test_what_is_inside_is_waited_for() -> None:
    async def main() -> None:
        door = Door()
        door.in_flight = 3
        async with leaving(door) as (drain, running, _):
            await asyncio.sleep(limits.DRAIN_GRACE_S + 20.0)
            phases = [drain.phase]
            door.in_flight = 0
            await asyncio.sleep(0.1)
            assert running.done()
            assert [*phases, drain.phase] == [Phase.REFUSING, Phase.CLOSED]

    run(main)


def test_a_request_that_never_ends_is_not_waited_for_past_the_deadline() -> None:
    async def main() -> None:
        door = Door()
        door.in_flight = 1
        async with leaving(door) as (_, running, _):
            await asyncio.sleep(limits.DRAIN_S - 0.1)
            assert not running.done()
            await asyncio.sleep(0.2)
            assert running.done()

    run(main)


def test_a_second_signal_ends_the_grace_and_not_the_requests() -> None:
    async def main() -> None:
        door = Door()
        door.in_flight = 1
        async with leaving(door) as (drain, running, _):
            await asyncio.sleep(0.1)
            drain.ask()
            await asyncio.sleep(0.1)
            assert door.draining
            assert not running.done()
            door.in_flight = 0
            await asyncio.sleep(0.1)
            assert running.done()

    run(main)
