"""Asks a real Envoy about everything that changed, before it is published.

Only what changed is checked, together with what it references, in one run for all of it; when Envoy
refuses, halves are tried until the resources to blame are known. One run takes some 40 ms.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from headrace import ir, limits
from headrace.config.problems import Problem
from headrace_xds.envoy_schema import EnvoySchema
from headrace_xds.gate import unit
from headrace_xds.gate.envoy import EnvoyCheck
from headrace_xds.gate.verdicts import Key, Verdicts, build_of
from headrace_xds.translate.bootstrap import bootstrap
from headrace_xds.translate.resources import Resource
from headrace_xds.translate.standalone import standalone

VERDICTS_FILE: Final = "gate-verdicts.bin"
_NOWHERE: Final = ("127.0.0.1", 1)
"""Address of a control server that is never connected to."""

log = logging.getLogger(__name__)


class Gate:
    """What may be published; ``judge`` gives the reasons why something may not."""

    def __init__(self, binary: Path, state_dir: Path, schema: EnvoySchema) -> None:
        self.check = EnvoyCheck(binary)
        self.refusals = 0
        """Resources that Envoy refused since the start."""
        self._schema = schema
        self._passed = Verdicts(state_dir / VERDICTS_FILE, build_of(binary))
        self._passed.load()

    def __repr__(self) -> str:
        """One line for operators."""
        runs = self.check.runs
        return f"<Gate runs={runs} passed={len(self._passed)} refusals={self.refusals}>"

    async def judge(
        self, mesh: ir.Mesh, published: Mapping[str, unit.Resources]
    ) -> tuple[Problem, ...]:
        """Problems of a configuration, by gateway; empty when all of it may be published.

        Raises ``NoVerdict`` when Envoy cannot be asked: then nothing may be published.
        """
        refused: list[tuple[Resource, str]] = []
        whole: dict[Key, Resource] = {}
        changed: dict[Key, Resource] = {}
        for gateway in (gateway for region in mesh.regions for gateway in region.gateways):
            resources = published[gateway.name]
            fresh = [each for each in unit.every(resources) if each.key not in whole]
            whole.update((each.key, each) for each in fresh)
            asked = [each for each in fresh if each not in self._passed]
            changed.update((each.key, each) for each in asked)
            loose = list(unit.dangling(resources)) if fresh else []
            refused += loose
            tables = {table.key for table, _ in loose}
            asked = [each for each in asked if each.key not in tables]
            for part in unit.split(asked, limits.GATE_CHUNK):
                refused += await self._refused(gateway, resources, part)
        self.refusals += len(refused)
        if changed and not refused:
            self._passed.add(changed.values())
            await asyncio.to_thread(self._passed.keep, whole.values())
        found = [problem for each in refused for problem in unit.problems(*each)]
        return tuple(dict.fromkeys(found))

    async def _refused(
        self, gateway: ir.Gateway, published: unit.Resources, changed: Sequence[Resource]
    ) -> list[tuple[Resource, str]]:
        """Changed resources that Envoy refuses."""
        text = await self._refusal(gateway, published, changed)
        if text is None:
            return []
        blamed: list[tuple[Resource, str]] = []
        for stage in unit.stages(changed):
            refused = [bad for bad, _ in blamed]
            judged = [each for each in stage if not unit.stands_on(each, refused)]
            blamed += await self._blamed(gateway, published, judged, runs=limits.GATE_RUNS)
        # Each alone may pass: then they do not go together, and the first stands for all.
        return blamed or [(changed[0], text)]

    async def _blamed(
        self,
        gateway: ir.Gateway,
        published: unit.Resources,
        changed: Sequence[Resource],
        *,
        runs: int,
    ) -> list[tuple[Resource, str]]:
        """Resources that are refused even without the others, as far as so many runs find them."""
        text = await self._refusal(gateway, published, changed) if changed else None
        if text is None:
            return []
        if len(changed) == 1 or runs <= 1:
            return [(changed[0], text)]
        first, second = unit.halves(changed)
        return [
            *await self._blamed(gateway, published, first, runs=runs // 2),
            *await self._blamed(gateway, published, second, runs=runs // 2),
        ]

    async def _refusal(
        self, gateway: ir.Gateway, published: unit.Resources, changed: Sequence[Resource]
    ) -> str | None:
        config = await asyncio.to_thread(self._config, gateway, published, changed)
        return await self.check.refusal(config)

    def _config(
        self, gateway: ir.Gateway, published: unit.Resources, changed: Sequence[Resource]
    ) -> bytes:
        started = bootstrap(gateway, zone="gate", xds=_NOWHERE, admin=_NOWHERE)
        return standalone(started, unit.around(published, changed), {}, self._schema)
