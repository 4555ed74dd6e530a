"""Whatever happens to a version, once faults stop it becomes what was ordered last."""

import asyncio
from collections import Counter
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import limits
from headrace_sidecar.gpu.keeper import Keeper
from headrace_sidecar.gpu.lifecycle import State
from headrace_sidecar.gpu.order import Order
from headrace_sidecar.gpu.setback import Setback
from tests.fakes.virtual_clock import run
from tests.fakes.workshop import Node, order, removal

CALM_S = 5 * limits.LOAD_DELAY_MAX_S + limits.REMOVAL_S


@dataclass(frozen=True)
class Do:
    """One thing that happens, and how long it is quiet afterwards."""

    what: str
    value: int
    pause_s: float


happenings = st.lists(
    st.builds(
        Do,
        what=st.sampled_from(["assign", "remove", "lose", "restart", "down", "fail", "recover"]),
        value=st.integers(0, 2),
        pause_s=st.sampled_from([0.0, 0.05, 0.11, 0.35, 1.0, 7.0]),
    ),
    max_size=25,
)


def ordered(do: Do, nonce: str) -> Order | None:
    match do.what:
        case "assign":
            return order(nonce, delay_ms=str(do.value))
        case "remove":
            return removal(nonce)
    return None


def happen(do: Do, *, node: Node, keeper: Keeper) -> None:
    match do.what:
        case "lose":
            keeper.lose("its process died")
        case "restart":
            node.workshop.restart()
            keeper.look()
        case "down":
            node.workshop.up = do.value > 0
            keeper.look()
        case "fail":
            step = ("place", "load", "check")[do.value]
            node.workshop.fail = lambda done, _: Setback("no") if done == step else None
        case "recover":
            node.workshop.fail = lambda step, _: None


@given(happenings)
@settings(max_examples=150, deadline=None)
def test_a_version_becomes_what_was_ordered_last(script: list[Do]) -> None:
    async def main() -> None:
        node = Node()
        async with node.keeping(order("first", delay_ms="0")) as (keeper,):
            last: str | None = "first"
            for number, do in enumerate(script):
                if keeper.state is State.GONE:
                    break
                if (newer := ordered(do, str(number))) is not None:
                    keeper.order(newer)
                    last = newer.nonce
                happen(do, node=node, keeper=keeper)
                await asyncio.sleep(do.pause_s)
            node.workshop.fail = lambda step, _: None
            node.workshop.up = True
            keeper.look()
            await asyncio.sleep(CALM_S)
            check(node, keeper, last)

    run(main)


def check(node: Node, keeper: Keeper, last: str | None) -> None:
    answers = Counter([*node.told.acks, *node.told.nacks])
    answers.pop(None, None)
    assert all(count == 1 for count in answers.values()), "an order was answered twice"
    if keeper.state is State.GONE:
        assert not node.workshop.loaded
        assert not list(node.serving)
        assert answers[last] == 1
        return
    assert answers[last] == 1, "the last order was not answered"
    if last not in node.told.nacks:
        served = node.serving.find("m", 1)
        assert keeper.state is State.READY
        assert served.ready
        assert node.workshop.loaded["m@1"] == keeper.assignment == served.assignment
