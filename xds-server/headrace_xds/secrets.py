"""Secrets in service: the last good content of each, for the gateways that use it.

Content is in memory only. What is kept on disk is names, so that after a start a secret that is
gone is told from one that never was.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from headrace import ir, names
from headrace.config.secrets import SecretState
from headrace_xds.source.files import write_file
from headrace_xds.source.secrets import Material, Reading
from headrace_xds.translate import tls
from headrace_xds.translate.resources import Resource

log = logging.getLogger(__name__)


class SecretStore:
    """What the last readings came to."""

    def __init__(self, were_usable: frozenset[str] = frozenset()) -> None:
        self.reading = Reading({})
        """The reading that was taken in last."""
        self.were_usable = were_usable
        self._good: dict[str, Material] = {}
        self._troubles: Mapping[str, str] = MappingProxyType({})

    def __repr__(self) -> str:
        """One line for operators."""
        return f"<SecretStore in_service={len(self._good)} broken={sorted(self._troubles)}>"

    @property
    def states(self) -> dict[str, SecretState]:
        """What is known of every secret, without its content."""
        known = self._good.keys() | self._troubles.keys() | self.were_usable
        return {name: self._state(name) for name in sorted(known)}

    def take(self, reading: Reading) -> None:
        """Put what can be used into service; what cannot leaves the content before it there."""
        there = reading.usable.keys() | reading.troubles.keys()
        gone = dict.fromkeys(self._good.keys() - there, "its folder is gone")
        merged = {name: self._whole(name, made) for name, made in reading.usable.items()}
        lost = {
            name: "a part of it that was in service is gone"
            for name, made in merged.items()
            if made != reading.usable[name]
        }
        troubles = {**gone, **lost, **reading.troubles}
        for name, trouble in sorted(troubles.items()):
            if self._troubles.get(name) != trouble:
                log.error("secret %s: %s", name, trouble)
        self.reading = reading
        self._troubles = MappingProxyType(troubles)
        self._good.update(merged)
        self.were_usable |= reading.usable.keys()

    def resources(self, gateway: ir.Gateway) -> dict[str, Resource | None]:
        """Secrets of a gateway by the names that it asks for; None where there is no content."""
        if gateway.tls is None:
            return {}
        pair = self._good.get(gateway.tls.secret, Material())
        made: dict[str, Resource | None] = {
            names.GATEWAY_CERTIFICATE: (
                tls.certificate(pair.certificate, pair.key) if pair.certificate else None
            )
        }
        if gateway.tls.client_ca is not None:
            ca = self._good.get(gateway.tls.client_ca, Material()).ca
            made[names.CLIENT_CA] = tls.client_ca(ca) if ca else None
        return made

    def _whole(self, name: str, made: Material) -> Material:
        """Content with the parts that only its predecessor has."""
        before = self._good.get(name, Material())
        pair = made if made.certificate else before
        return Material(pair.certificate, pair.key, made.ca or before.ca)

    def _state(self, name: str) -> SecretState:
        good = self._good.get(name, Material())
        trouble = self._troubles.get(name, "" if name in self._good else "its folder is gone")
        return SecretState(
            has_certificate=bool(good.certificate),
            has_ca=bool(good.ca),
            trouble=trouble,
            was_usable=name in self.were_usable,
        )


def load_names(path: Path) -> frozenset[str]:
    """Names of secrets that were in service; none where that is not known."""
    try:
        return frozenset(msgspec.json.decode(path.read_bytes(), type=list[str]))
    except FileNotFoundError:
        return frozenset()
    except (OSError, msgspec.MsgspecError) as error:
        log.error("%s cannot be read (%s): no secret is known to have been usable", path, error)
        return frozenset()


def save_names(path: Path, known: frozenset[str]) -> None:
    """Keep the names."""
    try:
        write_file(path, msgspec.json.encode(sorted(known)).decode())
    except OSError as error:
        log.error("names of secrets cannot be kept in %s: %s", path, error)
