"""A keeper takes one version through its life, on a virtual clock."""

import asyncio

import pytest

from headrace import limits
from headrace.refusals import Refused
from headrace_sidecar.gpu.lifecycle import Delays, State
from headrace_sidecar.gpu.serving import Outcome
from headrace_sidecar.gpu.setback import Setback
from tests.fakes.virtual_clock import now, run
from tests.fakes.workshop import STEP_S, Node, order, removal

SETTLED_S = 10 * STEP_S


def test_a_version_is_placed_loaded_checked_and_acknowledged() -> None:
    async def main() -> None:
        node = Node()
        async with node.keeping(order("1")) as (keeper,):
            assert not node.serving.find("m", 1).ready
            await asyncio.sleep(SETTLED_S)
            assert node.told.acks == ["1"]
            assert node.serving.find("m", 1).ready
            assert keeper.golden is not None
            assert node.told.states == [State.LOADING, State.CHECKING, State.READY]

    run(main)


def test_a_failure_that_lasts_is_refused_after_the_tries_with_its_reason() -> None:
    async def main() -> None:
        node = Node()
        node.workshop.fail = lambda step, _: Setback("no memory") if step == "load" else None
        async with node.keeping(order("1")):
            await asyncio.sleep(60.0)
        delays = Delays(limits.LOAD_DELAY_S, limits.LOAD_DELAY_MAX_S)
        assert node.told.nacks == {"1": "no memory"}
        assert node.workshop.done["load"] == limits.LOAD_TRIES
        waited_s = sum(delays.after(failures) for failures in range(1, limits.LOAD_TRIES))
        assert node.told.nacked_s == pytest.approx(waited_s + 2 * STEP_S * limits.LOAD_TRIES)

    run(main)


def test_a_permanent_failure_is_refused_at_once() -> None:
    async def main() -> None:
        node = Node()
        node.workshop.fail = lambda step, _: Setback("bad digest", permanent=True)
        async with node.keeping(order("1")):
            await asyncio.sleep(SETTLED_S)
        assert node.told.nacks == {"1": "bad digest"}
        assert node.workshop.done["place"] == 1

    run(main)


def test_an_absent_triton_is_waited_for_and_refuses_nothing() -> None:
    async def main() -> None:
        node = Node()
        node.workshop.up = False
        async with node.keeping(order("1")) as (keeper,):
            await asyncio.sleep(3_600.0)
            assert not node.told.nacks
            node.workshop.up = True
            keeper.look()
            await asyncio.sleep(SETTLED_S)
            assert node.told.acks == ["1"]

    run(main)


def test_an_attempt_of_equal_content_is_acknowledged_without_work() -> None:
    async def main() -> None:
        node = Node()
        async with node.keeping(order("1")) as (keeper,):
            await asyncio.sleep(SETTLED_S)
            keeper.order(order("2"))
            assert node.told.acks == ["1", "2"]
            await asyncio.sleep(SETTLED_S)
            assert node.workshop.done["load"] == 1

    run(main)


def test_an_attempt_of_equal_content_takes_over_the_work_under_way() -> None:
    async def main() -> None:
        node = Node()
        async with node.keeping(order("1")) as (keeper,):
            await asyncio.sleep(STEP_S * 1.5)
            keeper.order(order("2"))
            await asyncio.sleep(SETTLED_S)
            assert node.told.acks == ["2"]
            assert node.workshop.done["load"] == 1

    run(main)


def test_a_refused_version_is_tried_again_when_it_is_offered_again() -> None:
    async def main() -> None:
        node = Node()
        node.workshop.fail = lambda step, _: Setback("bad digest", permanent=True)
        async with node.keeping(order("1")) as (keeper,):
            await asyncio.sleep(SETTLED_S)
            node.workshop.fail = lambda step, _: None
            keeper.order(order("2"))
            await asyncio.sleep(SETTLED_S)
            assert node.told.acks == ["2"]

    run(main)


def test_an_update_serves_the_old_content_until_triton_has_switched() -> None:
    async def main() -> None:
        node = Node()
        async with node.keeping(order("1")) as (keeper,):
            await asyncio.sleep(SETTLED_S)
            keeper.order(order("2", delay_ms="1"))
            served = node.serving.find("m", 1)
            for _ in range(8):
                assert served.ready
                await asyncio.sleep(STEP_S / 2)
            await asyncio.sleep(SETTLED_S)
            assert served.ready
            assert served.assignment.parameters["delay_ms"] == "1"
            assert node.told.acks == ["1", "2"]

    run(main)


def test_a_refused_update_goes_back_to_the_content_that_worked() -> None:
    async def main() -> None:
        node = Node()
        async with node.keeping(order("1")) as (keeper,):
            await asyncio.sleep(SETTLED_S)
            node.workshop.fail = lambda step, assignment: (
                Setback("wrong answer", permanent=True)
                if step == "check" and "delay_ms" in assignment.parameters
                else None
            )
            keeper.order(order("2", delay_ms="1"))
            await asyncio.sleep(30.0)
            assert node.told.nacks == {"2": "wrong answer"}
            served = node.serving.find("m", 1)
            assert served.ready
            assert "delay_ms" not in served.assignment.parameters
            assert node.told.acks == ["1"]

    run(main)


def test_a_lost_version_is_unready_at_once_and_loaded_anew() -> None:
    async def main() -> None:
        node = Node()
        async with node.keeping(order("1")) as (keeper,):
            await asyncio.sleep(SETTLED_S)
            keeper.lose("its process died")
            assert not node.serving.find("m", 1).ready
            await asyncio.sleep(SETTLED_S)
            assert node.serving.find("m", 1).ready
            assert node.workshop.done == {"place": 2, "load": 2, "check": 2, "unload": 1}
            assert node.told.acks == ["1"]

    run(main)


def test_repairs_that_triton_fails_restart_it_once() -> None:
    async def main() -> None:
        node = Node()
        async with node.keeping(order("1")) as (keeper,):
            await asyncio.sleep(SETTLED_S)
            node.workshop.fail = lambda step, _: Setback("no") if step == "load" else None
            keeper.lose("its process died")
            await asyncio.sleep(600.0)
            assert node.workshop.restarts == 1
            assert node.workshop.done["load"] > limits.REPAIR_TRIES
            assert not node.told.nacks
            node.workshop.fail = lambda step, _: None
            await asyncio.sleep(limits.LOAD_DELAY_MAX_S + SETTLED_S)
            assert node.serving.find("m", 1).ready

    run(main)


def test_another_triton_is_loaded_without_being_told() -> None:
    async def main() -> None:
        node = Node()
        async with node.keeping(order("1")) as (keeper,):
            await asyncio.sleep(SETTLED_S)
            node.workshop.restart()
            keeper.look()
            assert not node.serving.find("m", 1).ready
            await asyncio.sleep(SETTLED_S)
            assert node.serving.find("m", 1).ready

    run(main)


def test_a_triton_that_is_replaced_during_a_load_is_loaded_again() -> None:
    async def main() -> None:
        node = Node()
        async with node.keeping(order("1")) as (keeper,):
            await asyncio.sleep(STEP_S * 2.5)
            node.workshop.restart()
            keeper.look()
            await asyncio.sleep(5.0)
            assert node.workshop.loaded
            assert node.told.acks == ["1"]

    run(main)


def test_a_removal_waits_for_the_requests_inside() -> None:
    async def main() -> None:
        node = Node()
        async with node.keeping(order("1")) as (keeper,):
            await asyncio.sleep(SETTLED_S)
            served = node.serving.find("m", 1)
            node.serving.begin(served, tier="standard", now_s=now())
            keeper.order(removal("2"))
            await asyncio.sleep(5.0)
            assert node.workshop.loaded
            with pytest.raises(Refused):
                node.serving.begin(served, tier="standard", now_s=now())
            node.serving.end(served, Outcome.COMPLETED, started_s=0.0, now_s=now())
            await asyncio.sleep(SETTLED_S)
            assert node.told.acks == ["1", "2"]
            assert not node.workshop.loaded
            assert not node.workshop.placed
            assert not list(node.serving)

    run(main)


def test_a_removal_does_not_wait_for_ever() -> None:
    async def main() -> None:
        node = Node()
        async with node.keeping(order("1")) as (keeper,):
            await asyncio.sleep(SETTLED_S)
            node.serving.begin(node.serving.find("m", 1), tier="standard", now_s=now())
            keeper.order(removal("2"))
            await asyncio.sleep(limits.REMOVAL_S - 1.0)
            assert node.told.acks == ["1"]
            await asyncio.sleep(1.0 + SETTLED_S)
            assert node.told.acks == ["1", "2"]

    run(main)


def test_letting_go_is_tried_until_it_works() -> None:
    async def main() -> None:
        node = Node()
        async with node.keeping(order("1")) as (keeper,):
            await asyncio.sleep(SETTLED_S)
            node.workshop.fail = lambda step, _: Setback("busy") if step == "discard" else None
            keeper.order(removal("2"))
            await asyncio.sleep(300.0)
            assert node.told.acks == ["1"]
            node.workshop.fail = lambda step, _: None
            await asyncio.sleep(limits.LOAD_DELAY_MAX_S + SETTLED_S)
            assert node.told.acks == ["1", "2"]

    run(main)


def test_what_triton_still_holds_is_adopted_after_a_check_without_a_load() -> None:
    async def main() -> None:
        node = Node()
        adopted = order(None, adopted=True)
        assert adopted.assignment is not None
        node.workshop.loaded["m@1"] = adopted.assignment
        async with node.keeping(adopted):
            await asyncio.sleep(SETTLED_S)
            assert node.serving.find("m", 1).ready
            assert node.workshop.done == {"place": 1, "check": 1}

    run(main)


def test_what_is_adopted_and_does_not_answer_is_loaded() -> None:
    async def main() -> None:
        node = Node()
        node.workshop.loaded["m@1"] = order("0", delay_ms="9").assignment  # type: ignore[assignment]
        async with node.keeping(order(None, adopted=True)):
            await asyncio.sleep(30.0)
            assert node.serving.find("m", 1).ready
            assert node.workshop.done["load"] == 1

    run(main)


def test_no_more_new_versions_are_worked_on_at_once_than_the_limit() -> None:
    async def main() -> None:
        node = Node()
        many = [order(str(number), model=f"m{number}") for number in range(20)]
        async with node.keeping(*many):
            await asyncio.sleep(60.0)
        assert node.workshop.most_at_once == limits.ASSIGNMENTS_IN_FLIGHT
        assert len(node.told.acks) == 20

    run(main)


def test_no_more_repairs_run_at_once_than_the_limit() -> None:
    async def main() -> None:
        node = Node()
        many = [order(str(number), model=f"m{number}") for number in range(20)]
        async with node.keeping(*many) as keepers:
            await asyncio.sleep(60.0)
            node.workshop.most_at_once = 0
            node.workshop.restart()
            for keeper in keepers:
                keeper.look()
            await asyncio.sleep(60.0)
            assert all(served.ready for served in node.serving)
        assert node.workshop.most_at_once == limits.REPAIRS_IN_FLIGHT

    run(main)
