"""Secrets that gateways name: each must have been usable once.

A secret that was usable and no longer is costs a warning only. Its last good content stays in
service, and an edit of something else must not wait for it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headrace.config import schema
from headrace.config.load import Loaded
from headrace.config.problems import Problem, near
from headrace.config.references import Path


@dataclass(frozen=True, slots=True)
class SecretState:
    """What is known of one secret, without its content."""

    has_certificate: bool = False
    has_ca: bool = False
    trouble: str = ""
    """Why what its folder holds now is not used; empty where it is in use."""
    was_usable: bool = False
    """It was in service before, be it in a former life of the server."""


def check(loaded: Loaded, known: Mapping[str, SecretState]) -> Iterator[Problem]:
    """Every secret that is named and is not as it should be."""
    for placed, mesh in loaded.each(schema.Mesh):
        for path, name, part in _named(mesh):
            state = known.get(name, SecretState(trouble="there is no such secret"))
            usable = state.has_ca if part == "ca.crt" else state.has_certificate
            trouble = state.trouble or ("" if usable else f"it has no {part}")
            if not trouble:
                continue
            in_service = state.has_certificate or state.has_ca
            stands = usable or (state.was_usable and not in_service)
            message = f'secret "{name}": {trouble}' + ("" if stands else near(name, known))
            yield placed.problem("HR0503" if stands else "HR0107", path, message)


def _named(mesh: schema.Mesh) -> Iterator[tuple[Path, str, str]]:
    """Where a gateway names a secret, which one, and what it wants of it."""
    for index, region in enumerate(mesh.spec.regions):
        for place, gateway in enumerate(region.gateways):
            path: Path = ("spec", "regions", index, "gateways", place, "tls")
            if gateway.tls is None:
                continue
            yield (*path, "secret"), gateway.tls.secret, "tls.crt"
            if gateway.tls.client_ca is not None:
                yield (*path, "clientCa"), gateway.tls.client_ca, "ca.crt"
