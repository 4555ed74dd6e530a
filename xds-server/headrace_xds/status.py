"""Status of objects: is it accepted, is it in effect at the gateways, is it ready on the nodes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from headrace import names
from headrace.config import schema
from headrace.policy.holding import HoldState, NodeState
from headrace_xds.configuration import Configuration, key_of
from headrace_xds.control import Control
from headrace_xds.fleet import Proxy, SyncState
from headrace_xds.views import holdings_of


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
        self, configuration: Configuration, control: Control, *, wall: Callable[[], str]
    ) -> None:
        self._configuration = configuration
        self._control = control
        self._wall = wall
        self._since: dict[tuple[str, str], tuple[bool, str]] = {}

    def of(self, item: schema.Object) -> dict[str, Any]:
        """Status of an object in effect."""
        key = key_of(item)
        conditions = [self._accepted(item), self._in_effect()]
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

    def _in_effect(self) -> Condition:
        fleet = self._control.fleet
        gateways = [p for p in fleet.proxies.values() if p.id.startswith("gateway/")]
        for proxy in gateways:
            if (reason := self._rejection(proxy)) is not None:
                return Condition("InEffect", False, "Rejected", f"{proxy.id}: {reason}")
        behind = [proxy.id for proxy in gateways if not fleet.in_effect(proxy)]
        if behind:
            return Condition("InEffect", False, "Pending", f"waiting for {', '.join(behind)}")
        if not gateways:
            return Condition("InEffect", False, "NoGateway", "no gateway is connected")
        return Condition("InEffect", True, "Acknowledged", f"by {len(gateways)} gateways")

    def _rejection(self, proxy: Proxy) -> str | None:
        fleet = self._control.fleet
        for type_url in fleet.types(proxy.group):
            status = fleet.status(proxy, type_url)
            if status.state is SyncState.NACK:
                name, rejection = next(iter(status.rejected.items()))
                return f"{name}: {rejection.message}"
        return None

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
