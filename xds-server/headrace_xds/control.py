"""What the control server decides: configuration, membership and load in, publications out.

No I/O and no clock. ``app.py`` calls ``advance``, makes the record durable, then calls ``publish``:
what was acknowledged is on disk before any gateway learns of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from headrace import ir, limits, names
from headrace.memo import Memo
from headrace.policy.holding import NodeState
from headrace.policy.membership import Membership
from headrace.policy.nodes import Wanted
from headrace.policy.record import NodeInfo, Record
from headrace.signals import NodeLoad
from headrace_xds.eds import PROTOCOLS, EndpointSets
from headrace_xds.fleet import Fleet
from headrace_xds.loads import LoadTable
from headrace_xds.offers import offer
from headrace_xds.secrets import SecretStore
from headrace_xds.translate.resources import CLUSTER, ENDPOINTS, SECRET, Resource

Resources = Mapping[str, Mapping[str, Resource]]


class Publications(Protocol):
    """Who serves what is published to a group of proxies: ``Publisher``."""

    def publish(self, group: str, type_url: str, resources: Mapping[str, Resource]) -> None:
        """Replace everything of a type for a group."""

    def withhold(self, group: str, type_url: str, withheld: frozenset[str]) -> None:
        """Leave these names unanswered for now."""

    def drop_group(self, group: str) -> None:
        """Forget a group."""

    def commit(self) -> None:
        """All of a configuration is published."""

    def advance(self, *, now_s: float) -> None:
        """Let time pass."""

    def clusters_in_use(self) -> frozenset[str]:
        """Clusters that are not published any more and that somebody is still served routes to."""


@dataclass(frozen=True)
class Compiled:
    """A configuration that passed every check: the mesh, and resources by gateway and type."""

    mesh: ir.Mesh
    resources: Mapping[str, Resources]


@dataclass(frozen=True)
class _Retiring:
    """A version that the configuration dropped and gateways may still route to."""

    served: ir.ServedVersion
    until_s: float


class Control:
    """The state of the control server, and what it tells proxies and sidecars."""

    def __init__(
        self,
        *,
        publications: Publications,
        membership: Membership,
        fleet: Fleet,
        secrets: SecretStore | None = None,
    ) -> None:
        self.secrets = secrets or SecretStore()
        self.membership = membership
        self.fleet = fleet
        self.sets = EndpointSets()
        self.loads = LoadTable()
        self.compiled: Compiled | None = None
        self._publications = publications
        self._retiring: dict[str, _Retiring] = {}
        self._withheld: frozenset[str] = frozenset()
        self._membership_changed = True
        self._offers_due = True
        self._endpoints_due = True
        self._memo = Memo()

    def __repr__(self) -> str:
        """One line for operators."""
        return (
            f"<Control {self.membership!r} {self.fleet!r} {self.sets!r} "
            f"retiring={len(self._retiring)} withheld={len(self._withheld)}>"
        )

    @property
    def withheld(self) -> frozenset[str]:
        """Clusters whose endpoints stay unanswered for now."""
        return self._withheld

    @property
    def retiring(self) -> frozenset[str]:
        """Versions on their way out, by assignment name."""
        return frozenset(self._retiring)

    def configure(self, compiled: Compiled, *, now_s: float) -> None:
        """Put a configuration into effect."""
        previous, self.compiled = self.compiled, compiled
        current = {served.assignment.name for served in compiled.mesh.versions}
        for served in previous.mesh.versions if previous else ():
            name = served.assignment.name
            if name not in current:
                self._retiring[name] = _Retiring(served, now_s + limits.RETIRE_S)
        for name in current & self._retiring.keys():
            del self._retiring[name]
        if previous is None or not _same_places(previous.mesh, compiled.mesh):
            self.sets.relocate()
        self._place(now_s)
        # Endpoints first: a new cluster's name must be known when its proxy asks for endpoints.
        self.sets.rebuild(self._versions(), self.membership, self.loads, now_s=now_s)
        self._withheld = self._unsettled(now_s)
        self._publish_endpoints(compiled.mesh)
        self.publish_secrets()
        for gateway in _gateways(compiled.mesh):
            group = names.gateway_node_id(gateway.name)
            for type_url, resources in compiled.resources[gateway.name].items():
                self._publish(group, type_url, resources)
        gateways = {names.gateway_node_id(gateway.name) for gateway in _gateways(compiled.mesh)}
        self._drop_groups(names.gateway_node_id(""), keep=gateways)
        self._publications.commit()

    def publish_secrets(self) -> None:
        """Give every gateway the secrets that it names, and no other.

        One that is not there now is not told to be gone: a gateway goes on with what it has.
        """
        for gateway in _gateways(self.compiled.mesh) if self.compiled else ():
            group = names.gateway_node_id(gateway.name)
            made = self.secrets.resources(gateway)
            there = {name: secret for name, secret in made.items() if secret is not None}
            self._publications.withhold(group, SECRET, frozenset(made.keys() - there.keys()))
            self._publish(group, SECRET, there)

    def observe(self, load: NodeLoad) -> None:
        """Take in a load report."""
        self.loads.observe(load)

    def note_membership(self) -> None:
        """Say that membership took in a fact."""
        self._membership_changed = True

    def advance(self, *, now_s: float) -> Record | None:
        """Let time pass and decide; nothing is published yet. Returns what must be recorded."""
        if self.compiled is None:
            return None
        self._publications.advance(now_s=now_s)
        if self.membership.advance(now_s=now_s):
            self._membership_changed = True
        self._retire(now_s)
        if self._membership_changed:
            self.loads.keep_only(self.membership.nodes)
            if self.sets.rebuild(self._versions(), self.membership, self.loads, now_s=now_s):
                self._endpoints_due = True
        if self.sets.follow(self._versions(), self.loads, now_s=now_s):
            self._endpoints_due = True
        withheld = self._unsettled(now_s)
        if withheld != self._withheld:
            self._withheld = withheld
            self._endpoints_due = True
        if not self._membership_changed:
            return None
        self._membership_changed = False
        self._offers_due = True
        return self.membership.record()

    def publish(self) -> None:
        """Tell gateways and sidecars what was decided."""
        if self.compiled is None:
            return
        if self._offers_due:
            self._offers_due = False
            self._publish_offers()
        if self._endpoints_due:
            self._endpoints_due = False
            self._publish_endpoints(self.compiled.mesh)

    def report_addresses(self) -> dict[str, tuple[str, int]]:
        """Where the load reports of every node are."""
        return {
            holder.info.name: (holder.info.address, holder.info.orca_port)
            for holder in self.membership.serving_nodes()
        }

    def _versions(self) -> list[ir.ServedVersion]:
        assert self.compiled is not None
        retiring = [retiring.served for retiring in self._retiring.values()]
        return [*self.compiled.mesh.versions, *retiring]

    def _place(self, now_s: float) -> None:
        assert self.compiled is not None
        wanted = {
            served.assignment.name: self._memo.get(
                ("wanted", served.model, served.version), (served,), partial(_wanted, served)
            )
            for served in self._versions()
        }
        self.membership.place(wanted, _static_nodes(self.compiled.mesh), now_s=now_s)
        self._membership_changed = True
        self._endpoints_due = True

    def _retire(self, now_s: float) -> None:
        """Let nodes drop a version once no gateway can send requests for it to them."""
        in_use = self._publications.clusters_in_use() if self._retiring else frozenset()
        done = [
            name
            for name, retiring in self._retiring.items()
            if in_use.isdisjoint(_clusters(name))
            and (retiring.until_s <= now_s or self._is_in_effect(CLUSTER, _clusters(name)))
        ]
        for name in done:
            del self._retiring[name]
        if done:
            self._place(now_s)
        for name in self.membership.retiring():
            if self._is_in_effect(ENDPOINTS, _endpoint_sets(name)):
                self.membership.release(name, now_s=now_s)
                self._membership_changed = True

    def _is_in_effect(self, type_url: str, resources: list[str]) -> bool:
        """Whether every gateway is here and has what is published under these names, or nothing."""
        assert self.compiled is not None
        groups = {names.gateway_node_id(g.name) for g in _gateways(self.compiled.mesh)}
        present = {proxy.group for proxy in self.fleet.proxies.values()}
        return groups <= present and self.fleet.gateways_agree(type_url, resources)

    def _unsettled(self, now_s: float) -> frozenset[str]:
        wanted = self.membership.wanted
        withheld = {
            names.cluster(*names.parse_assignment(name), protocol)
            for name in self.membership.settle(wanted, now_s=now_s)
            for protocol in PROTOCOLS
        }
        if not self.membership.nodes_settled(now_s=now_s):
            withheld.update(names.node_cluster(protocol) for protocol in PROTOCOLS)
        return frozenset(withheld)

    def _publish_offers(self) -> None:
        served = {version.assignment.name: version for version in self._versions()}
        registered = [
            name
            for name, node in self.membership.nodes.items()
            if node.state is not NodeState.STATIC
        ]
        for name in registered:
            offers = {
                assignment: offer(served[assignment], attempt)
                for assignment, attempt in self.membership.offers(name).items()
            }
            self._publish(names.gpu_node_id(name), names.ASSIGNMENT_TYPE_URL, offers)
        self._drop_groups(names.gpu_node_id(""), keep={names.gpu_node_id(n) for n in registered})

    def _drop_groups(self, prefix: str, *, keep: set[str]) -> None:
        """Forget what is published to nodes or gateways that are no longer known."""
        for group in self.fleet.groups() - keep:
            if group.startswith(prefix):
                self._publications.drop_group(group)
                self.fleet.retract(group)

    def _publish_endpoints(self, mesh: ir.Mesh) -> None:
        pools = {pool.name: pool for pool in mesh.pools}
        for region in mesh.regions:
            resources = self.sets.resources(region, pools)
            answered = {n: r for n, r in resources.items() if n not in self._withheld}
            for gateway in region.gateways:
                group = names.gateway_node_id(gateway.name)
                self._publications.withhold(group, ENDPOINTS, self._withheld)
                self._publications.publish(group, ENDPOINTS, resources)
                self.fleet.published(group, ENDPOINTS, answered)

    def _publish(self, group: str, type_url: str, resources: Mapping[str, Resource]) -> None:
        self._publications.publish(group, type_url, resources)
        self.fleet.published(group, type_url, resources)


def _same_places(before: ir.Mesh, after: ir.Mesh) -> bool:
    return before.regions == after.regions and before.pools == after.pools


def _gateways(mesh: ir.Mesh) -> list[ir.Gateway]:
    return [gateway for region in mesh.regions for gateway in region.gateways]


def _wanted(served: ir.ServedVersion) -> Wanted:
    return Wanted(
        pools=frozenset(served.pools),
        fingerprint=offer(served, 0).version,
        version_at=lambda attempt: offer(served, attempt).version,
    )


def _endpoint_sets(assignment: str) -> list[str]:
    model, version = names.parse_assignment(assignment)
    return [names.cluster(model, version, protocol) for protocol in PROTOCOLS]


def _clusters(assignment: str) -> list[str]:
    model, version = names.parse_assignment(assignment)
    shadows = [names.shadow_cluster(model, version, protocol) for protocol in PROTOCOLS]
    return [*_endpoint_sets(assignment), *shadows]


def _static_nodes(mesh: ir.Mesh) -> list[NodeInfo]:
    return [
        NodeInfo(
            name=node.name,
            pool=pool.name,
            region=pool.region,
            zone=pool.zone,
            address=node.address,
            http_port=node.http_port,
            grpc_port=node.grpc_port,
            orca_port=node.orca_port,
        )
        for pool in mesh.pools
        for node in pool.nodes
    ]
