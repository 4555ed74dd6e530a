"""Orders of the control server and what is said back, on a virtual clock."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace import limits, names
from headrace.assignment import Assignment, to_json
from headrace_sidecar.adsclient.messages import Assigned, Removed
from headrace_sidecar.gpu.assignments import Assignments
from headrace_sidecar.gpu.lifecycle import State
from headrace_sidecar.gpu.records import Record, Records
from headrace_sidecar.gpu.serving import Serving
from headrace_sidecar.gpu.setback import Setback
from tests.fakes.sidecar_assignments import identity
from tests.fakes.virtual_clock import now, run
from tests.fakes.workshop import STEP_S, Workshop

SETTLED_S = 10 * STEP_S


class Control:
    """What was answered."""

    def __init__(self) -> None:
        self.acks: list[str] = []
        self.nacks: dict[str, str] = {}

    def ack(self, nonce: str) -> None:
        self.acks.append(nonce)

    def nack(self, nonce: str, message: str) -> None:
        self.nacks[nonce] = message


class Chronicle:
    def __init__(self) -> None:
        self.loads: list[float] = []

    def entered(self, assignment: Assignment, state: State) -> None:
        pass

    def loaded(self, assignment: Assignment, duration_s: float) -> None:
        self.loads.append(duration_s)


class World:
    def __init__(self, folder: Path) -> None:
        self.workshop, self.control = Workshop(), Control()
        self.chronicle, self.records = Chronicle(), Records(folder)
        self.assignments = Assignments(
            serving=Serving(node="n1"),
            steps=self.workshop,
            records=self.records,
            chronicle=self.chronicle,
            now=now,
        )
        self.assignments.control = self.control

    def assign(self, nonce: str, model: str = "m", **changes: Any) -> None:
        assignment = identity(model)
        value = {**to_json(assignment), **changes.pop("value", {})}
        told = Assigned(nonce, assignment.name, f"v{nonce}", names.ASSIGNMENT_KIND, value)
        self.assignments.assigned(
            Assigned(**{**{key: getattr(told, key) for key in told.__slots__}, **changes})
        )


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[World]:
    made = World(folder)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(made.assignments.run())
        yield made
        running.cancel()


def test_a_version_is_acknowledged_and_on_record(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as made:
            made.assign("1")
            await asyncio.sleep(SETTLED_S)
            assert made.control.acks == ["1"]
            assert Records(tmp_path).all == {"m@1": Record("v1", identity("m"))}
            assert made.chronicle.loads == [pytest.approx(3 * STEP_S)]

    run(main)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kind": "type.example/Other"}, "type.example/Other is not"),
        ({"value": {"version": "one"}}, "version"),
        ({"value": {"model": "other"}}, "the assignment inside is other@1"),
    ],
    ids=["another kind", "a value of the wrong type", "another version inside"],
)
def test_what_is_no_assignment_is_refused(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    async def main() -> None:
        async with world(tmp_path) as made:
            made.assign("1", **changes)
            assert reason in made.control.nacks["1"]

    run(main)


def test_a_version_that_is_not_here_is_gone_already(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as made:
            made.assignments.removed(Removed("1", "never@1"))
            assert made.control.acks == ["1"]

    run(main)


def test_a_version_may_come_back_after_it_was_removed(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as made:
            made.assign("1")
            await asyncio.sleep(SETTLED_S)
            made.assignments.removed(Removed("2", "m@1"))
            await asyncio.sleep(SETTLED_S)
            assert made.control.acks == ["1", "2"]
            assert not made.records.all
            made.assign("3")
            await asyncio.sleep(SETTLED_S)
            assert made.control.acks == ["1", "2", "3"]

    run(main)


def test_a_node_refuses_more_versions_than_it_may_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ASSIGNMENTS_PER_NODE", 3)

    async def main() -> None:
        async with world(tmp_path) as made:
            for number in range(4):
                made.assign(str(number), model=f"m{number}")
            assert set(made.control.nacks) == {"3"}

    run(main)


def test_what_was_ready_before_is_claimed_after_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        Records(tmp_path).keep(Record("v7", identity("m")))
        async with world(tmp_path) as made:
            made.workshop.loaded["m@1"] = identity("m")
            assert await made.assignments.adopt() == {"m@1": "v7"}
            assert made.workshop.done["load"] == 0

    run(main)


def test_what_does_not_answer_in_time_is_not_claimed(tmp_path: Path) -> None:
    async def main() -> None:
        Records(tmp_path).keep(Record("v7", identity("m")))
        async with world(tmp_path) as made:
            made.workshop.fail = lambda step, _: Setback("no", counted=False)
            assert await made.assignments.adopt() == {}
            assert now() == pytest.approx(limits.ADOPT_S, abs=0.2)
            assert not made.records.all
            made.workshop.fail = lambda step, _: None
            made.assign("1")
            await asyncio.sleep(10 * SETTLED_S)
            assert made.control.acks == ["1"]

    run(main)


def test_without_triton_nothing_is_waited_for(tmp_path: Path) -> None:
    async def main() -> None:
        Records(tmp_path).keep(Record("v7", identity("m")))
        async with world(tmp_path) as made:
            made.workshop.up = False
            assert await made.assignments.adopt() == {}
            assert now() < 1.0

    run(main)


def test_a_record_promises_nothing_while_its_content_changes(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as made:
            made.assign("1")
            await asyncio.sleep(SETTLED_S)
            made.assign("2", value={"parameters": {"delay_ms": "1"}})
            assert not Records(tmp_path).all
            await asyncio.sleep(SETTLED_S)
            assert Records(tmp_path).all["m@1"].resource_version == "v2"

    run(main)


def test_records_that_cannot_be_read_are_put_aside(tmp_path: Path) -> None:
    (tmp_path / "assignments.json").write_text("{")
    assert Records(tmp_path).all == {}
    assert (tmp_path / "assignments.unreadable").read_text() == "{"
