"""From files to resources, in one step that changes nothing: what a configuration would mean."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from headrace import ir
from headrace.config.analyze import analyze, usable
from headrace.config.load import Loaded, Placed, load
from headrace.config.problems import Problem
from headrace.config.secrets import SecretState
from headrace.resolve import resolve
from headrace_xds.control import Compiled
from headrace_xds.translate import translate
from headrace_xds.translate.fragments import FragmentCache

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checked:
    """Every problem in some files, and what they mean unless one problem is an error."""

    objects: tuple[Placed, ...]
    problems: tuple[Problem, ...]
    compiled: Compiled | None
    failure: str = ""
    undecided: bool = False
    """Whether the failure is that the gate gave no verdict, which it may give later."""
    """A defect of this program met on the way; the configuration is refused, traffic goes on."""


def check(
    files: Mapping[str, str],
    cache: FragmentCache,
    secrets: Mapping[str, SecretState] | None = None,
) -> Checked:
    """Load, analyze, resolve and translate; nothing is put into effect and nothing is raised."""
    try:
        return _check(files, cache, secrets)
    except Exception as error:
        log.exception("the configuration cannot be checked")
        return Checked((), (), None, failure=f"internal error: {error!r}")


def _check(
    files: Mapping[str, str], cache: FragmentCache, secrets: Mapping[str, SecretState] | None
) -> Checked:
    loaded = load(sorted(files.items()), cache.readings)
    problems = analyze(loaded, secrets)
    if not usable(problems):
        return Checked(loaded.objects, problems, None)
    return Checked(loaded.objects, problems, _compile(loaded, cache))


def _compile(loaded: Loaded, cache: FragmentCache) -> Compiled:
    mesh = resolve(loaded, cache.memo)
    return Compiled(
        mesh=mesh,
        resources={gateway.name: translate(mesh, gateway, cache) for gateway in _gateways(mesh)},
    )


def _gateways(mesh: ir.Mesh) -> list[ir.Gateway]:
    return [gateway for region in mesh.regions for gateway in region.gateways]
