"""Placing model versions: what is refused, and what is on disk after every step."""

from pathlib import Path

import msgspec
import pytest

from headrace import limits
from headrace_models import catalogue, golden, layout
from headrace_models.failure import Failure
from headrace_models.repository import Repository, models_dir
from tests.fakes.model_server import ARTIFACTS, assigned, echo

IDENTITY = catalogue.EXECUTORS["identity"]


@pytest.fixture
def places(tmp_path: Path) -> layout.Layout:
    made = layout.layout(tmp_path, tmp_path / "a.sock")
    made.repository_dir.mkdir()
    made.placed_dir.mkdir()
    return made


@pytest.fixture
def repository(places: layout.Layout) -> Repository:
    return Repository(places, models_dir())


def folders(places: layout.Layout) -> list[str]:
    return sorted(path.name for path in places.placed_dir.iterdir())


def test_every_executor_of_the_catalogue_has_a_program() -> None:
    programs = {path.parent.name for path in models_dir().glob("*/model.py")}
    assert programs == catalogue.EXECUTORS.keys()


def test_a_placed_version_is_complete(repository: Repository, places: layout.Layout) -> None:
    assert repository.place(echo(), IDENTITY, {}) == "echo.1"
    place = places.repository_dir / "echo.1"
    assert (place / "config.pbtxt").read_text().startswith('name: "echo.1"')
    assert (place / "1" / "model.py").read_bytes()
    assert repository.placed() == (echo(),)


def test_a_restart_knows_what_was_placed(repository: Repository, places: layout.Layout) -> None:
    repository.place(msgspec.structs.replace(echo(), attempt=2), IDENTITY, {})
    assert Repository(places, models_dir()).placed() == repository.placed() == (echo(),)


def test_a_changed_version_replaces_the_old_folder(
    repository: Repository, places: layout.Layout
) -> None:
    repository.place(echo(), IDENTITY, {})
    before = folders(places)
    changed = echo(parameters={"delay_ms": "1"})
    repository.place(changed, IDENTITY, {})
    assert len(folders(places)) == 1
    assert folders(places) != before
    assert repository.placed() == (changed,)


def test_another_attempt_is_the_same_version(repository: Repository, places: layout.Layout) -> None:
    repository.place(echo(), IDENTITY, {})
    before = folders(places)
    repository.place(msgspec.structs.replace(echo(), attempt=4), IDENTITY, {})
    assert folders(places) == before


def test_a_removed_version_leaves_nothing(repository: Repository, places: layout.Layout) -> None:
    repository.place(echo(), IDENTITY, {})
    repository.remove("echo", 1)
    repository.remove("echo", 1)
    assert folders(places) == []
    assert repository.placed() == ()


def test_what_an_interrupted_write_left_is_swept(
    repository: Repository, places: layout.Layout
) -> None:
    repository.place(echo(), IDENTITY, {})
    kept = folders(places)
    (places.placed_dir / ".half.new" / "1").mkdir(parents=True)
    (places.placed_dir / "orphan-0").mkdir()
    repository.sweep()
    assert folders(places) == kept


def test_one_version_more_than_the_limit_is_refused_for_now(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PLACED_VERSIONS", 1)
    repository.place(echo(), IDENTITY, {})
    repository.place(echo(parameters={"delay_ms": "1"}), IDENTITY, {})
    second = msgspec.structs.replace(echo(), version=2)
    with pytest.raises(Failure, match="too_many_versions") as refused:
        repository.place(second, IDENTITY, {})
    assert not refused.value.permanent


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"executor": "magic"}, "unknown_executor"),
        ({"artifact": "resnet"}, "unknown_artifact"),
        ({"parameters": {"speed": "11"}}, "unknown_parameter"),
        ({"inputs": ()}, "wrong_tensors"),
        ({"outputs": ()}, "wrong_tensors"),
    ],
    ids=["executor", "artifact", "parameter", "inputs", "outputs"],
)
def test_what_no_executor_can_run_is_refused_for_good(
    changes: dict[str, object], code: str
) -> None:
    wrong = msgspec.structs.replace(assigned("vision", 1), **changes)
    with pytest.raises(Failure) as refused:
        catalogue.check(wrong)
    assert refused.value.code == code
    assert refused.value.permanent
    assert refused.value.remedy


@pytest.mark.parametrize(("model", "version"), list(ARTIFACTS))
def test_every_real_version_can_be_placed_and_has_a_golden_answer(model: str, version: int) -> None:
    assignment = assigned(model, version)
    executor = catalogue.check(assignment)
    made = golden.golden(assignment)
    asked = {tensor["name"]: tensor for tensor in made["request"]["inputs"]}
    assert asked.keys() == executor.inputs
    assert all(tensor["shape"][0] == 1 for tensor in asked.values())
    assert {check["output"] for check in made["checks"]} <= executor.outputs
    assert made["checks"]


@pytest.mark.parametrize("datatype", ["UINT8", "BYTES", "BOOL", "FP32"])
def test_an_echo_of_every_type_has_a_golden_answer(datatype: str) -> None:
    made = golden.golden(echo(datatype, max_batch_size=0))
    (tensor,) = made["request"]["inputs"]
    assert tensor["shape"] == [1]
    assert made["checks"][0]["equals"] == tensor["data"][0]
