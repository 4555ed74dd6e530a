"""The last good configuration, on disk, with the generation of every object in it.

A broken folder at start therefore still serves what was served before. One file, replaced in one
step; the generation rises with every configuration that was put into effect.
"""

import hashlib
import logging
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

log = logging.getLogger(__name__)


class ObjectGeneration(msgspec.Struct, frozen=True):
    """How often an object's meaning changed, and a hash of what it means now."""

    generation: int
    fingerprint: str


class LastGood(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration that was put into effect; objects by ``Kind/name``."""

    generation: int = 0
    files: dict[str, str] = {}
    objects: dict[str, ObjectGeneration] = {}


def succeed(
    previous: LastGood, files: Mapping[str, str], objects: Mapping[str, object]
) -> LastGood:
    """The configuration after ``previous``: itself when nothing means anything else."""
    fingerprints = {
        key: hashlib.blake2b(msgspec.json.encode(value), digest_size=8).hexdigest()
        for key, value in objects.items()
    }
    generations = {}
    for key, fingerprint in fingerprints.items():
        before = previous.objects.get(key)
        same = before is not None and before.fingerprint == fingerprint
        number = before.generation + (not same) if before else 1
        generations[key] = ObjectGeneration(number, fingerprint)
    changed = generations != previous.objects
    return LastGood(
        generation=previous.generation + changed, files=dict(files), objects=generations
    )


def load(path: Path) -> LastGood:
    """What was kept; an empty one where there is none that can be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=LastGood)
    except FileNotFoundError:
        return LastGood()
    except (OSError, msgspec.MsgspecError) as error:
        log.error("%s cannot be read (%s): no last good configuration is known", path, error)
        return LastGood()


def save(path: Path, kept: LastGood) -> None:
    """Keep it, durably and in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as stream:
        stream.write(msgspec.json.encode(kept))
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(path)
