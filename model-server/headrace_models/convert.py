"""Converts one artifact into the cache: ``python -m headrace_models.convert NAME --cache-dir DIR``.

Progress goes to stderr, a failure as JSON to stdout. Two converters never work on one artifact: the
second waits and finds the work done. The folder appears complete or not at all.
"""

import argparse
import contextlib
import fcntl
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from headrace import limits
from headrace_models import artifacts, recipes
from headrace_models.failure import Failure

_WAIT_S = 0.1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; its exit status."""
    parser = argparse.ArgumentParser(prog="headrace_models.convert", description=__doc__)
    parser.add_argument("artifact", choices=sorted(artifacts.ARTIFACTS))
    parser.add_argument("--cache-dir", type=Path, required=True)
    parsed = parser.parse_args(arguments)
    try:
        convert(artifacts.ARTIFACTS[parsed.artifact], parsed.cache_dir)
    except Failure as failure:
        print(json.dumps(_plain(failure)))
        return 1
    return 0


def convert(artifact: artifacts.Artifact, cache_dir: Path) -> Path:
    """Folder of the converted artifact; the work is skipped when it is done already."""
    folder = artifacts.place(cache_dir, artifact)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder.with_name(f"{folder.name}.lock"), artifact.name):
        if artifacts.verified(folder) is None:
            _convert(artifact, folder)
    return folder


def _convert(artifact: artifacts.Artifact, folder: Path) -> None:
    started_s = time.monotonic()
    _progress(artifact.name, "checking sources")
    sources = {role: artifacts.locate(source) for role, source in artifact.sources.items()}
    fresh = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    try:
        _progress(artifact.name, f"converting with recipe {artifact.recipe}")
        recipes.RECIPES[artifact.recipe](sources, fresh)
        _progress(artifact.name, "writing digests")
        _seal(fresh)
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        raise _disk(fresh, error) from error
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)
    _progress(artifact.name, f"done in {time.monotonic() - started_s:.1f} s")


def _seal(folder: Path) -> None:
    """Record the digest of every file, and make sure all of it is on the disk."""
    files = sorted(folder.iterdir())
    digests = {file.name: artifacts.file_digest(file) for file in files}
    manifest = folder / artifacts.MANIFEST
    manifest.write_text(json.dumps(digests, indent=1) + "\n")
    for file in (*files, manifest):
        with file.open("rb") as handle:
            os.fsync(handle.fileno())


@contextlib.contextmanager
def _alone(lock: Path, name: str) -> Iterator[None]:
    """Hold the artifact's lock, waiting for another converter to finish."""
    deadline_s = time.monotonic() + limits.CONVERT_S
    with lock.open("w") as handle:
        while not _try_lock(handle.fileno()):
            if time.monotonic() > deadline_s:
                raise Failure(
                    "conversion_stuck",
                    "another converter has held the artifact for too long",
                    where=name,
                    remedy="end that process; the lock goes with it",
                    permanent=False,
                )
            _progress(name, "waiting for another converter")
            time.sleep(_WAIT_S)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _progress(name: str, message: str) -> None:
    print(f"headrace-triton: {name}: {message}", file=sys.stderr, flush=True)


def _disk(folder: Path, error: OSError) -> Failure:
    return Failure(
        "cache_not_writable",
        str(error),
        where=str(folder),
        remedy="free space, or choose another --cache-dir",
        permanent=False,
    )


def _plain(failure: Failure) -> dict[str, object]:
    return {
        "code": failure.code,
        "message": failure.message,
        "where": failure.where,
        "remedy": failure.remedy,
        "permanent": failure.permanent,
    }


if __name__ == "__main__":
    sys.exit(main())
