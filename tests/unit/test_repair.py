"""Repair finds versions that do not answer, on a virtual clock."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from headrace import limits
from headrace.assignment import Assignment
from headrace_sidecar.gpu.agent import Golden
from headrace_sidecar.gpu.keeper import Keeper
from headrace_sidecar.gpu.lifecycle import State
from headrace_sidecar.gpu.repair import Repair
from headrace_sidecar.gpu.serving import Outcome
from headrace_sidecar.gpu.setback import Setback
from tests.fakes.virtual_clock import now, run
from tests.fakes.workshop import Node, order

Answer = Callable[[], Awaitable[bool]]


class Prober:
    """Answers as told, and counts."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked = 0
        self.at_once = 0
        self.most_at_once = 0
        self.timeouts: set[float] = set()

    async def probe(self, assignment: Assignment, question: Golden, *, timeout_s: float) -> bool:
        self.asked += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.timeouts.add(timeout_s)
        try:
            return await self.answer()
        finally:
            self.at_once -= 1


class Watch:
    """A repair at work on ready versions."""

    def __init__(self, node: Node, keepers: list[Keeper], prober: Prober) -> None:
        self.lost: list[tuple[str, str]] = []
        self.abandoned: list[str] = []
        self.executed = 0
        self.node = node
        self.keepers = keepers
        self.repair = Repair(
            {keeper.name: keeper for keeper in keepers},
            prober=prober,
            service_s=lambda name: 0.0,
            executed=lambda name: self.executed,
            abandon=self._abandon,
            repaired=lambda assignment, cause: self.lost.append((assignment.name, cause)),
            now=now,
        )

    async def _abandon(self, triton_model: str) -> None:
        self.abandoned.append(triton_model)


@asynccontextmanager
async def watching(answer: Answer, *, versions: int = 1) -> AsyncIterator[tuple[Watch, Prober]]:
    node, prober = Node(), Prober(answer)
    orders = [order(str(number), model=f"m{number}") for number in range(versions)]
    async with node.keeping(*orders) as keepers, asyncio.TaskGroup() as tasks:
        await asyncio.sleep(10.0)
        assert all(keeper.state is State.READY for keeper in keepers)
        watch = Watch(node, keepers, prober)
        running = tasks.create_task(watch.repair.run())
        yield watch, prober
        running.cancel()


async def yes() -> bool:
    return True


async def wrong() -> bool:
    raise Setback("not the golden answer")


async def full() -> bool:
    return False


def test_a_version_that_gives_the_golden_answer_is_left_alone() -> None:
    async def main() -> None:
        async with watching(yes) as (watch, prober):
            await asyncio.sleep(60.0)
            assert not watch.lost
            assert (
                60.0 / limits.PROBE_PERIOD_S - 2 < prober.asked < 60.0 / limits.PROBE_PERIOD_S + 1
            )
            assert prober.timeouts == {limits.PROBE_S}

    run(main)


def test_an_idle_version_that_does_not_answer_is_repaired() -> None:
    async def main() -> None:
        async with watching(wrong) as (watch, _):
            await asyncio.sleep(limits.PROBE_PERIOD_S + 1.0)
            assert watch.lost == [("m0@1", "silent")]
            assert watch.abandoned == ["m0.1"]

    run(main)


def test_a_version_that_hangs_under_requests_is_found_within_stall_and_probe() -> None:
    async def main() -> None:
        async def hangs() -> bool:
            await asyncio.sleep(limits.PROBE_S)
            raise Setback("no golden answer")

        async with watching(hangs) as (watch, _):
            served = watch.node.serving.find("m0", 1)
            watch.node.serving.begin(served, tier="standard", now_s=now())
            await asyncio.sleep(limits.STALL_S + limits.PROBE_S + 0.5)
            assert watch.lost == [("m0@1", "silent")]

    run(main)


def test_a_full_queue_that_does_not_move_is_a_hang() -> None:
    async def main() -> None:
        async with watching(full) as (watch, _):
            served = watch.node.serving.find("m0", 1)
            watch.node.serving.begin(served, tier="standard", now_s=now())
            await asyncio.sleep(limits.STALL_S + limits.PROBE_S + 0.5)
            assert watch.lost == [("m0@1", "silent")]

    run(main)


def test_a_full_queue_that_moves_is_not_a_hang() -> None:
    async def main() -> None:
        async with watching(full) as (watch, prober):
            serving = watch.node.serving
            served = serving.find("m0", 1)
            for _ in range(30):
                serving.begin(served, tier="standard", now_s=now())
                await asyncio.sleep(limits.STALL_S + 0.7)
                serving.end(served, Outcome.COMPLETED, started_s=now(), now_s=now())
            assert prober.asked > 10
            assert not watch.lost

    run(main)


def test_a_version_that_works_for_others_is_not_judged_hung() -> None:
    async def main() -> None:
        async with watching(wrong) as (watch, _):
            for _ in range(600):
                watch.executed += 1
                await asyncio.sleep(limits.SIGNAL_PERIOD_S)
            assert not watch.lost

    run(main)


def test_a_dead_process_is_repaired_when_triton_says_so() -> None:
    async def main() -> None:
        async with watching(yes) as (watch, _):
            watch.repair.stub_died("m0.1")
            watch.repair.stub_died("m0.1")
            watch.repair.stub_died("unknown.1")
            assert watch.lost == [("m0@1", "died")]
            assert not watch.node.serving.find("m0", 1).ready

    run(main)


def test_no_more_versions_are_asked_at_once_than_the_limit() -> None:
    async def main() -> None:
        async def slow() -> bool:
            await asyncio.sleep(limits.PROBE_S / 2)
            return True

        async with watching(slow, versions=12) as (watch, prober):
            await asyncio.sleep(4 * limits.PROBE_PERIOD_S)
            assert prober.most_at_once == limits.PROBES_IN_FLIGHT
            assert not watch.lost

    run(main)
