"""Status of objects: is it accepted, is it in effect at the gateways, is it ready on the nodes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from headrace import names
from headrace.config import schema
from headrace.policy.holding import HoldState, NodeState
from headrace_xds.configuration import Configuration, key_of
from headrace_xds.control import Control
from headrace_xds.fleet import Proxy
from headrace_xds.publish.publisher import Publisher
from headrace_xds.views import SHORT_TYPES, holdings_of


@dataclass(frozen=True)
class Condition:
    """One aspect of an object: whether it holds, a reason for programs, a message for people."""

    type: str
    holds: bool
    reason: str
    message: str = ""


class Statuses:
    """Conditions of objects, with the time when each last changed."""

    def __init__(
        self,
        configuration: Configuration,
        control: Control,
        publisher: Publisher,
        *,
        wall: Callable[[], str],
    ) -> None:
        self._configuration = configuration
        self._control = control
        self._publisher = publisher
        self._wall = wall
        self._since: dict[tuple[str, str], tuple[bool, str]] = {}

    def of(self, item: schema.Object) -> dict[str, Any]:
        """Status of an object in effect."""
        key = key_of(item)
        conditions = [self._accepted(item), self._in_effect(item)]
        if isinstance(item, schema.Model):
            conditions.append(self._model_ready(item))
        if isinstance(item, schema.Pool):
            conditions.append(self._pool_ready(item))
        return {
            "observedGeneration": self._configuration.generation_of(item),
            "conditions": [self._view(key, condition) for condition in conditions],
        }

    def forget_others(self, items: Iterable[schema.Object]) -> None:
        """Drop what is remembered of objects that no longer exist."""
        keys = {key_of(item) for item in items}
        self._since = {key: kept for key, kept in self._since.items() if key[0] in keys}

    def _view(self, key: str, condition: Condition) -> dict[str, str]:
        held, since = self._since.get((key, condition.type), (None, ""))
        if held is not condition.holds:
            since = self._wall()
            self._since[key, condition.type] = (condition.holds, since)
        return {
            "type": condition.type,
            "status": "True" if condition.holds else "False",
            "reason": condition.reason,
            "message": condition.message,
            "lastTransitionTime": since,
        }

    def _accepted(self, item: schema.Object) -> Condition:
        if self._configuration.accepted:
            return Condition("Accepted", True, "Valid")
        name = f"{type(item).__name__} {item.metadata.name}"
        own = [p.message for p in self._configuration.problems if p.is_error and p.object == name]
        if own:
            return Condition("Accepted", False, "Invalid", own[0])
        return Condition(
            "Accepted",
            False,
            "ConfigurationInvalid",
            "the configuration has errors elsewhere; what was accepted last is in effect",
        )

    def _in_effect(self, item: schema.Object) -> Condition:
        if (refused := self._quarantined(item)) is not None:
            return Condition("InEffect", False, "Quarantined", refused)
        gateways = [p for p in self._control.fleet.proxies.values() if names.is_gateway(p.id)]
        behind = [proxy.id for proxy in gateways if self._is_behind(proxy)]
        if behind:
            return Condition("InEffect", False, "Pending", f"waiting for {', '.join(behind)}")
        if not gateways:
            return Condition("InEffect", False, "NoGateway", "no gateway is connected")
        return Condition("InEffect", True, "Acknowledged", f"by {len(gateways)} gateways")

    def _quarantined(self, item: schema.Object) -> str | None:
        """What a proxy refused of an object; of what is made from nothing alone, the mesh's."""
        key = (type(item).__name__, item.metadata.name)
        for refusal, _, wanted, served in self._publisher.active():
            made_from = {(source.kind, source.name): source for source in wanted.sources}
            if key not in made_from and (made_from or not isinstance(item, schema.Mesh)):
                continue
            source = made_from.get(key)
            place = f" made from {source.file}:{source.line}" if source else ""
            instead = "the version before stays in effect" if served else "it is left out"
            kind = SHORT_TYPES.get(refusal.type_url, refusal.type_url)
            return (
                f"{refusal.proxy} (build {refusal.build}) refused {kind} {refusal.name}{place}: "
                f"{refusal.message}; {instead}"
            )
        return None

    def _is_behind(self, proxy: Proxy) -> bool:
        """Whether a proxy lacks anything but what its build refused."""
        fleet = self._control.fleet
        return any(
            fleet.behind(proxy, type_url) - self._publisher.excused(proxy.id, proxy.build, type_url)
            for type_url in fleet.types(proxy.group)
        )

    def _model_ready(self, model: schema.Model) -> Condition:
        ready = total = 0
        reasons = []
        for version in model.spec.versions:
            name = names.assignment(model.metadata.name, version.version)
            serving = 0
            for node, holding in holdings_of(self._control, name):
                if holding.retires_at_s is not None:
                    continue
                total += 1
                ready += holding.state is HoldState.READY
                serving += holding.serves
                if holding.message:
                    reasons.append(f"{name} on {node}: {holding.message}")
            if not serving:
                reasons.append(f"{name} is ready on no node")
        message = "; ".join([f"{ready} of {total} ready", *reasons[:5]])
        if reasons:
            failed = any("on no node" not in reason for reason in reasons)
            return Condition("Ready", False, "Failed" if failed else "Loading", message)
        done = ready == total
        return Condition("Ready", done, "Held" if done else "Loading", message)

    def _pool_ready(self, pool: schema.Pool) -> Condition:
        states = [
            node.state
            for node in self._control.membership.nodes.values()
            if node.info.pool == pool.metadata.name
        ]
        up = sum(1 for state in states if state in (NodeState.CONNECTED, NodeState.STATIC))
        message = f"{up} of {len(states)} nodes connected"
        if not states:
            return Condition("Ready", False, "NoNodes", message)
        done = up == len(states)
        return Condition("Ready", done, "Connected" if done else "NodesMissing", message)
