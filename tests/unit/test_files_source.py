"""A folder of YAML files, read while others write to it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headrace import limits
from headrace_xds.source import polling
from headrace_xds.source.files import Folder, changes, read_folder, write_file


@asynccontextmanager
async def watched(path: Path) -> AsyncIterator["asyncio.Queue[Folder]"]:
    """Readings of a folder as they come."""
    seen: asyncio.Queue[Folder] = asyncio.Queue()
    known = [read_folder(path)]

    async def watch() -> None:
        async for folder in changes(path, lambda: known[-1]):
            known.append(folder)
            seen.put_nowait(folder)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(watch())
        yield seen
        task.cancel()


async def next_of(seen: "asyncio.Queue[Folder]") -> Folder:
    async with asyncio.timeout(10):
        return await seen.get()


async def test_an_edit_a_new_file_and_a_removed_file_are_seen(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("1")
    async with watched(tmp_path) as seen:
        (tmp_path / "a.yaml").write_text("2")
        assert (await next_of(seen)).files == {"a.yaml": "2"}
        write_file(tmp_path / "b.yml", "3")
        assert (await next_of(seen)).files == {"a.yaml": "2", "b.yml": "3"}
        (tmp_path / "a.yaml").unlink()
        assert (await next_of(seen)).files == {"b.yml": "3"}


async def test_a_renamed_file_is_one_change(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("1")
    async with watched(tmp_path) as seen:
        (tmp_path / "a.yaml").rename(tmp_path / "b.yaml")
        assert (await next_of(seen)).files == {"b.yaml": "1"}
        (tmp_path / "b.yaml").rename(tmp_path / "b.txt")
        assert (await next_of(seen)).files == {}
        assert seen.empty()


async def test_many_rapid_edits_are_few_readings_and_the_last_one_counts(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("0")
    async with watched(tmp_path) as seen:
        started_s = time.monotonic()
        for number in range(1, 201):
            write_file(tmp_path / "a.yaml", str(number))
            await asyncio.sleep(0.002)
        readings = 1
        while (await next_of(seen)).files != {"a.yaml": "200"}:
            readings += 1
        took_s = time.monotonic() - started_s
        assert readings <= 1 + took_s / (polling.SETTLE_S + polling.POLL_S)
        assert seen.empty()


async def test_going_back_after_a_change_that_others_made_is_a_change(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("1")
    known = read_folder(tmp_path)
    readings = changes(tmp_path, lambda: known)
    # As if somebody wrote 2 through the admin API, and an editor 1 before anybody looked.
    known = Folder({"a.yaml": "2"})
    async with asyncio.timeout(10):
        assert (await anext(readings)).files == {"a.yaml": "1"}
    await readings.aclose()


async def test_touching_and_other_files_are_not_changes(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("1")
    async with watched(tmp_path) as seen:
        (tmp_path / "a.yaml").touch()
        (tmp_path / "README.md").write_text("x")
        (tmp_path / ".a.yaml.swp").write_text("x")
        (tmp_path / "a.yaml").write_text("2")
        assert (await next_of(seen)).files == {"a.yaml": "2"}
        assert seen.empty()


async def test_a_file_that_is_written_in_pieces_is_seen_once_and_whole(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("old")
    async with watched(tmp_path) as seen:
        with (tmp_path / "a.yaml").open("w") as stream:
            for piece in range(10):
                stream.write(f"piece {piece}\n")
                stream.flush()
                await asyncio.sleep(0.005)
        assert (await next_of(seen)).files["a.yaml"].count("piece") == 10
        assert seen.empty()


async def test_a_folder_that_never_rests_is_read_anyway(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("0")
    async with watched(tmp_path) as seen, asyncio.TaskGroup() as tasks:

        async def scribble() -> None:
            number = 0
            while True:
                number += 1
                (tmp_path / "a.yaml").write_text(str(number))
                await asyncio.sleep(polling.SETTLE_S / 5)

        scribbling = tasks.create_task(scribble())
        await next_of(seen)
        scribbling.cancel()


async def test_the_swap_of_a_mounted_config_map_is_one_change(tmp_path: Path) -> None:
    folder = tmp_path / "config"
    folder.mkdir()
    for number in (1, 2):
        (folder / f"..{number}").mkdir()
        (folder / f"..{number}" / "a.yaml").write_text(str(number))
    (folder / "..data").symlink_to("..1")
    (folder / "a.yaml").symlink_to("..data/a.yaml")
    async with watched(folder) as seen:
        (folder / "..next").symlink_to("..2")
        (folder / "..next").rename(folder / "..data")
        assert (await next_of(seen)).files == {"a.yaml": "2"}
        assert seen.empty()


async def test_a_folder_that_is_replaced_is_followed(tmp_path: Path) -> None:
    folder = tmp_path / "config"
    folder.mkdir()
    async with watched(folder) as seen:
        folder.rmdir()
        assert (await next_of(seen)).unreadable
        folder.mkdir()
        (folder / "a.yaml").write_text("1")
        while (found := await next_of(seen)).unreadable or not found.files:
            continue
        assert found.files == {"a.yaml": "1"}


def test_config_files_are_limited_by_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CONFIG_FILES", 2)
    for name in "abc":
        (tmp_path / f"{name}.yaml").write_text(name)
    assert read_folder(tmp_path).unreadable == ("3 files, at most 2 are read",)


def test_config_file_bytes_are_limited_and_binary_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CONFIG_FILE_BYTES", 10)
    (tmp_path / "big.yaml").write_text("x" * 11)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe")
    folder = read_folder(tmp_path)
    assert folder.files == {}
    assert [reason.partition(":")[0] for reason in folder.unreadable] == ["big.yaml", "binary.yaml"]
