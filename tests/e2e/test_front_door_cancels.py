"""Callers who leave at any moment: nothing stays counted in, and Triton lives and answers on."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from random import Random

import grpc.aio
import pytest

from tests.fakes.front_door import FrontDoor
from tests.fakes.grpc_calls import ask, call, until
from tests.fakes.triton_process import TritonProcess

pytestmark = pytest.mark.e2e

LONG_MS = 10_000
WORK_MS = 40

Send = Callable[[int], Awaitable[bool]]
"""Asks the slow model for so many milliseconds of work: whether it was answered well."""


def over_http(door: FrontDoor) -> Send:
    async def send(work_ms: int) -> bool:
        tensor = {"name": "data", "shape": [1], "datatype": "INT32", "data": [work_ms]}
        body = json.dumps({"inputs": [tensor]})
        return (await door.send("POST", "/v2/models/slow/infer", data=body)).status == 200

    return send


def over_grpc(door: FrontDoor) -> Send:
    async def send(work_ms: int) -> bool:
        answer = await call(door, "ModelInfer", ask([work_ms], model="slow"))
        return bool(answer.model_name == "slow")

    return send


class Slow:
    """The slow model behind one of the front doors, and what it wrote down."""

    def __init__(self, door: FrontDoor, triton: TritonProcess, send: Send) -> None:
        self.door, self.triton, self.send = door, triton, send
        self._log = triton.folder / "slow.log"
        self._log.write_text("")

    def noted(self, what: str) -> int:
        """How often the model wrote this."""
        return self._log.read_text().split().count(what)

    def start(self, work_ms: int) -> "asyncio.Task[bool]":
        """A caller."""
        return asyncio.create_task(self._until_it_leaves(work_ms))

    async def _until_it_leaves(self, work_ms: int) -> bool:
        # A call whose caller left may end as one that failed; it must never end as a wrong answer.
        with suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
            return await self.send(work_ms)
        return False

    async def is_unharmed(self) -> None:
        """Nobody is inside, and the next caller is answered by the same Triton."""
        served = self.door.serving.find("slow", 1)
        await until(lambda: (self.door.serving.in_flight, served.in_flight) == (0, 0))
        assert await self.send(1)
        assert self.triton.alive
        assert await self.door.triton.live()
        assert served.failed_total == 0


@pytest.fixture(params=[over_http, over_grpc], ids=["HTTP", "gRPC"])
async def slow(request: pytest.FixtureRequest, door: FrontDoor, triton: TritonProcess) -> Slow:
    return Slow(door, triton, request.param(door))


async def test_callers_who_leave_the_queue_cost_no_work(slow: Slow) -> None:
    running = slow.start(LONG_MS)
    await until(lambda: slow.noted("began") == 1)
    queued = [slow.start(LONG_MS) for _ in range(8)]
    await until(lambda: slow.door.serving.in_flight == 9)
    for task in Random(14).sample(queued, 8):
        task.cancel()
    await until(lambda: slow.door.serving.in_flight == 1)
    running.cancel()
    await slow.is_unharmed()
    # Triton hands the model what was cancelled in the queue, too; the model sees that it was.
    assert slow.noted("finished") == 1
    assert slow.noted("cancelled") == slow.noted("began") - 1


async def test_callers_who_leave_as_their_answer_comes_harm_nobody(slow: Slow) -> None:
    for number in range(1, 11):
        task = slow.start(WORK_MS)
        await until(partial(lambda count: slow.noted("finished") >= count, number))
        task.cancel()
        await task
    await slow.is_unharmed()
    assert slow.noted("began") == 11


async def test_callers_who_leave_at_random_moments_harm_nobody(slow: Slow) -> None:
    chance = Random(14)
    for _ in range(5):
        callers = []
        async with asyncio.TaskGroup() as leaving:
            for _ in range(8):
                task = slow.start(chance.choice((1, WORK_MS)))
                callers.append(task)
                leaving.create_task(leave(task, after_s=chance.uniform(0.0, 5 * WORK_MS / 1000)))
        await asyncio.gather(*callers)
        await slow.is_unharmed()
    assert slow.noted("cancelled") > 0
    assert slow.noted("finished") > 5


async def leave(task: "asyncio.Task[bool]", *, after_s: float) -> None:
    """Give a call up unless it ends sooner."""
    with suppress(TimeoutError):
        await asyncio.wait_for(task, after_s)
