"""Refusals and what is served instead, on disk: a restart of the server sends nothing refused."""

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from headrace_xds.publish.audience import Audience
from headrace_xds.publish.quarantine import Quarantine, Refusal
from headrace_xds.translate.resources import SECRET

DAMAGED_SUFFIX: Final = ".damaged"

log = logging.getLogger(__name__)


class Good(msgspec.Struct, frozen=True, kw_only=True):
    """A version that proxies of a build took, of a resource of which they refused another."""

    group: str
    build: str
    type_url: str
    name: str
    version: str
    body: bytes


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """All that is kept."""

    refusals: tuple[Refusal, ...] = ()
    goods: tuple[Good, ...] = ()
    proven: str = ""
    """Digest of the publication that the canary took last."""


def goods(
    quarantine: Quarantine, audiences: Iterable[tuple[str, Audience]], before: Iterable[Good]
) -> tuple[Good, ...]:
    """Last good versions of everything that is quarantined, by group; ``before`` as long as held.

    A secret is not among them: it never goes to disk.
    """
    found = {
        (good.group, good.build, good.type_url, good.name): good
        for good in before
        if good.name in quarantine.held(good.build, good.type_url)
    }
    for group, audience in audiences:
        of_build = (refusal for refusal in quarantine if refusal.build == audience.build)
        for type_url, name in {(refusal.type_url, refusal.name) for refusal in of_build}:
            good = audience.good(type_url, name)
            if good is not None and type_url != SECRET:
                found[group, audience.build, type_url, name] = Good(
                    group=group,
                    build=audience.build,
                    type_url=type_url,
                    name=name,
                    version=good.version,
                    body=good.body,
                )
    return tuple(found.values())


def load(path: Path) -> Kept:
    """What was kept. A file that cannot be read is put aside: its refusals are found out anew."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Kept)
    except FileNotFoundError:
        return Kept()
    except msgspec.MsgspecError as error:
        aside = path.with_name(path.name + DAMAGED_SUFFIX)
        path.replace(aside)
        log.error(
            "%s is damaged (%s); it is %s now, and nothing is quarantined", path, error, aside
        )
        return Kept()


def save(path: Path, kept: Kept) -> None:
    """Keep it, durably and in one step; raises ``OSError``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as stream:
        stream.write(msgspec.json.encode(kept))
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(path)
