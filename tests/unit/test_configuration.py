"""From files to what is in effect; the last good configuration when they are bad."""

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from headrace_xds import compiler
from headrace_xds.compiler import Checked
from headrace_xds.configuration import Configuration, Unwritable, key_of
from headrace_xds.control import Compiled
from headrace_xds.source.files import Folder, read_folder
from headrace_xds.translate.fragments import FragmentCache
from tests.fakes.control_world import MESH, MODEL, ROUTE

FILES = {
    "mesh.yaml": MESH % {"orca_port": 18082, "gateway_port": 10000},
    "model.yaml": MODEL,
    "route.yaml": ROUTE % 1,
}


class World:
    """A configuration folder and what came into effect of it."""

    def __init__(self, folder: Path, files: Mapping[str, str] = FILES) -> None:
        self.folder = folder / "config"
        self.folder.mkdir(exist_ok=True)
        self.state = folder / "state"
        self.effects: list[Compiled] = []
        for name, text in files.items():
            (self.folder / name).write_text(text)
        self.made = self.restarted()

    def restarted(self) -> Configuration:
        return Configuration(
            self.folder, self.state, effect=self.effects.append, wall_s=lambda: 1.0
        )

    async def reload(self, **files: str) -> Configuration:
        for name, text in files.items():
            (self.folder / f"{name}.yaml").write_text(text)
        await self.made.reload(read_folder(self.folder))
        return self.made


async def test_a_good_folder_comes_into_effect(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.made.start()
    assert (world.made.generation, world.made.accepted) == (1, True)
    assert [served.version for served in world.effects[0].mesh.versions] == [1, 2]


async def test_a_bad_one_changes_nothing_and_lists_every_problem(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.made.start()
    await world.reload(route=ROUTE % 1 + "  timeot: 1s\n  retri: {}\n")
    assert (world.made.generation, world.made.accepted) == (1, False)
    assert len(world.effects) == 1
    assert len(world.made.problems) == 2
    assert world.made.rejections == 1


async def test_the_generation_rises_with_meaning_and_not_with_comments(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.made.start()
    await world.reload(route="# a comment\n" + ROUTE % 1)
    assert world.made.generation == 1
    await world.reload(route=ROUTE % 2)
    assert world.made.generation == 2
    generations = {key_of(p.object): world.made.generation_of(p.object) for p in world.made.objects}
    assert (generations["Route/echo"], generations["Model/echo"]) == (2, 1)


async def test_generations_survive_a_restart(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.made.start()
    await world.reload(route=ROUTE % 2)
    again = world.restarted()
    await again.start()
    assert again.generation == 2


async def test_a_bad_folder_at_start_leaves_the_last_good_in_effect(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.made.start()
    (world.folder / "mesh.yaml").unlink()
    again = world.restarted()
    await again.start()
    assert (again.generation, again.accepted, len(world.effects)) == (1, False, 2)
    assert again.objects


async def test_an_unreadable_last_good_is_said_and_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, {"mesh.yaml": "kind: ["})
    world.state.mkdir()
    (world.state / "last-good.json").write_text("{")
    with caplog.at_level(logging.ERROR):
        await world.made.start()
    assert world.effects == []
    assert "no last good configuration" in caplog.text


async def test_a_defect_while_checking_refuses_the_configuration_and_keeps_serving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    await world.made.start()

    def broken(*_: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(compiler, "translate", broken)
    await world.reload(route=ROUTE % 2)
    assert (world.made.generation, world.made.accepted) == (1, False)
    assert world.made.unreadable == ("internal error: RuntimeError('a defect')",)


async def test_a_defect_while_publishing_is_said_and_survived(tmp_path: Path) -> None:
    world = World(tmp_path)

    def broken(_: Compiled) -> None:
        raise ValueError("a defect")

    made = Configuration(world.folder, world.state, effect=broken, wall_s=lambda: 1.0)
    await made.start()
    assert (made.generation, made.accepted) == (0, False)
    assert made.unreadable == ("internal error: ValueError('a defect')",)


async def test_a_full_disk_does_not_keep_a_configuration_from_coming_into_effect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path)
    world.state.write_text("a file where the folder should be")
    with caplog.at_level(logging.ERROR):
        await world.made.start()
    assert world.made.accepted
    assert "cannot be kept" in caplog.text


async def test_a_folder_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.made.start()
    await world.made.reload(Folder(FILES, ("x.yaml: permission denied",)))
    assert not world.made.accepted


async def test_a_thousand_edits_end_in_the_last_one(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.made.start()
    for number in range(1000):
        (world.folder / "route.yaml").write_text(ROUTE % (1 + number % 2))
    await world.reload()
    assert world.effects[-1].mesh.routes[0].arms[0].version == 2


@pytest.mark.parametrize(
    "text", ["", "kind: [", "kind: Nothing", ROUTE % 1 + "  x: 1"], ids=["empty", "b", "c", "d"]
)
async def test_apply_never_writes_what_does_not_pass(tmp_path: Path, text: str) -> None:
    world = World(tmp_path)
    await world.made.start()
    checked, results = await world.made.apply(text, dry_run=False)
    assert read_folder(world.folder).files == FILES
    assert (checked.compiled is not None) is (text == "")
    assert results == {}


async def test_apply_does_not_touch_a_folder_that_needs_a_person(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.made.start()
    (world.folder / "binary.yaml").write_bytes(b"\xff")
    with pytest.raises(Unwritable):
        await world.made.apply(ROUTE % 2, dry_run=False)


async def test_deleting_the_last_object_of_a_file_deletes_the_file(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.made.start()
    await world.made.delete("Route", "echo", dry_run=True)
    assert (world.folder / "route.yaml").exists()
    checked: Checked = await world.made.delete("Route", "echo", dry_run=False)
    assert checked.compiled is not None
    assert not (world.folder / "route.yaml").exists()


def test_a_check_of_unchanged_parts_encodes_nothing_again() -> None:
    cache = FragmentCache()
    compiler.check(FILES, cache)
    built = cache.built
    compiler.check(FILES, cache)
    assert cache.built == built


async def test_a_folder_that_is_deleted_changes_nothing_and_is_named(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.made.start()
    shutil.rmtree(world.folder)
    await world.reload()
    assert (world.made.generation, world.made.accepted) == (1, False)
    assert world.made.unreadable == ("config: No such file or directory",)
    assert len(world.effects) == 1
    world.folder.mkdir()
    await world.reload(**{name.removesuffix(".yaml"): text for name, text in FILES.items()})
    assert (world.made.generation, world.made.accepted) == (1, True)


async def test_a_reading_from_before_an_apply_does_not_undo_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.made.start()
    known = world.made.folder
    stale = Folder({**FILES, "route.yaml": "# half of what was written\n"})
    await world.made.apply(ROUTE % 2, dry_run=False)
    await world.made.reload(stale, instead_of=known)
    assert (world.made.generation, world.made.accepted) == (2, True)
    await world.made.reload(read_folder(world.folder), instead_of=world.made.folder)
    assert world.made.generation == 2
