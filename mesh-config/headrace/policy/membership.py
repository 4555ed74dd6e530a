"""Which GPU nodes are endpoints of which model version.

Facts go in (streams, acknowledgements, the configuration, the ledger at start), decisions come out
(what each node is offered, who holds what, which endpoint sets must stay unanswered for now). It
does no I/O and reads no clock. Endpoints are the nodes that acknowledged a version. A lost stream
makes a node suspect and takes nothing away. After a start, a version stays unanswered until the
nodes that the ledger names for it are back or RETURN_GRACE_S have passed, so that a restart of the
server never empties an endpoint set.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set

from headrace import limits
from headrace.policy.holding import GONE, HoldEvent, HoldState, NodeEvent, NodeState
from headrace.policy.nodes import SERVING, Holder, Holding, Node, Wanted
from headrace.policy.record import HeldRecord, NodeInfo, NodeRecord, Record


class Membership:
    """Nodes and holdings. ``record`` is what the ledger kept; None where it was lost."""

    def __init__(
        self,
        record: Record | None,
        *,
        now_s: float,
        return_grace_s: float = limits.RETURN_GRACE_S,
        forget_node_s: float = limits.FORGET_NODE_S,
    ) -> None:
        self.nodes: dict[str, Node] = {}
        self.wanted: Mapping[str, Wanted] = {}
        self._lost_record = record is None
        self._grace_ends_s = now_s + return_grace_s
        self._forget_node_s = forget_node_s
        self._forgotten: list[tuple[float, str]] = []
        self._recorded_names = frozenset(record.versions if record else ())
        self._settled: set[str] = set()
        self._in_pool: dict[str, dict[str, Wanted]] = defaultdict(dict)
        for kept in record.nodes if record else ():
            node = Node(info=kept.info, state=NodeState.RECORDED, since_s=now_s)
            for held in kept.held:
                node.holdings[held.name] = Holding(
                    HoldState.READY,
                    serves=True,
                    version=held.version,
                    attempt=held.attempt,
                    since_s=now_s,
                )
            self.nodes[kept.info.name] = node

    def __repr__(self) -> str:
        """One line for operators."""
        states = [node.state.value for node in self.nodes.values()]
        counted = ", ".join(f"{state}={states.count(state)}" for state in sorted(set(states)))
        return f"<Membership versions={len(self.wanted)} {counted or 'no nodes'}>"

    # --- facts ----------------------------------------------------------------------------------

    def connect(self, stream_id: int, info: NodeInfo, *, now_s: float) -> bool:
        """Take in a control stream of a node; False when there are too many nodes."""
        node = self.nodes.get(info.name)
        if node is not None and node.state is NodeState.STATIC:
            return False
        if node is None:
            if len(self.nodes) >= limits.GPU_NODES:
                return False
            node = self.nodes[info.name] = Node(info, NodeState.CONNECTED, now_s)
        else:
            node.apply(NodeEvent.CONNECT, now_s=now_s)
        if node.info.pool != info.pool:
            node.holdings.clear()
        node.info = info
        node.streams.add(stream_id)
        self._place_on(node, None, now_s=now_s)
        return True

    def claim(self, name: str, held: Mapping[str, str], *, now_s: float) -> None:
        """Take in what a node says it serves at the start of a stream, by content hash."""
        if (node := self._registered(name)) is None:
            return
        for assignment, holding in list(node.holdings.items()):
            if assignment in held:
                holding.version = held[assignment]
                current = self._is_current(assignment, holding)
                event = HoldEvent.CLAIM if current else HoldEvent.CLAIM_OLDER
                holding.apply(event, now_s=now_s)
            else:
                holding.apply(HoldEvent.MISSING, now_s=now_s)
                self._drop_gone(node, assignment)

    def disconnect(self, stream_id: int, name: str, *, now_s: float) -> None:
        """Take in the end of a stream; a node is suspect once its last one is gone."""
        node = self._registered(name)
        if node is None or stream_id not in node.streams:
            return
        node.streams.discard(stream_id)
        if not node.streams:
            node.apply(NodeEvent.LOSE, now_s=now_s)

    def leave(self, name: str, *, now_s: float) -> None:
        """Take in a node's own word that it is going."""
        node = self._registered(name)
        if node is not None and node.state not in GONE:
            node.apply(NodeEvent.LEAVE, now_s=now_s)

    def ack(self, name: str, assignment: str, version: str, *, now_s: float) -> None:
        """Take in an acknowledgement; an empty version acknowledges a removal."""
        if (holding := self._holding(name, assignment)) is None:
            return
        if not version:
            holding.apply(HoldEvent.REMOVED, now_s=now_s)
            holding.version = ""
            self._drop_gone(self.nodes[name], assignment)
            return
        holding.apply(HoldEvent.ACK, now_s=now_s)
        holding.version, holding.message = version, ""

    def nack(self, name: str, assignment: str, message: str, *, now_s: float) -> None:
        """Take in that a node gave up, and when to ask it again."""
        if (holding := self._holding(name, assignment)) is None:
            return
        last = holding.attempt + 1 >= limits.ASSIGNMENT_ATTEMPTS
        holding.apply(HoldEvent.NACK_LAST if last else HoldEvent.NACK, now_s=now_s)
        holding.message = message
        holding.retry_at_s = now_s + backoff_s(holding.attempt)

    def place(
        self, wanted: Mapping[str, Wanted], static: Iterable[NodeInfo], *, now_s: float
    ) -> None:
        """Take in the configuration: what must be held where, and nodes that never register."""
        before, self.wanted = self.wanted, wanted
        # Thousands of nodes hold thousands of versions: an edit looks at what it changed.
        changed = {name for name in before.keys() | wanted if before.get(name) != wanted.get(name)}
        edited = {
            name
            for name in changed
            if name in before
            and name in wanted
            and before[name].fingerprint != wanted[name].fingerprint
        }
        for name in changed:
            for want in (before.get(name), wanted.get(name)):
                for pool in want.pools if want else ():
                    self._in_pool[pool].pop(name, None)
        for name in changed & wanted.keys():
            for pool in wanted[name].pools:
                self._in_pool[pool][name] = wanted[name]
        everything = self._place_static({info.name: info for info in static}, now_s=now_s)
        for node in self.nodes.values():
            for name in (edited | self._edited_while_down(node)) & node.holdings.keys():
                holding = node.holdings[name]
                holding.apply(HoldEvent.EDIT, now_s=now_s)
                holding.attempt, holding.message = 0, ""
            if node.info.name not in everything:
                self._place_on(node, changed, now_s=now_s)

    def advance(self, *, now_s: float) -> bool:
        """Let time pass: offer again, forget. True when a decision may have changed."""
        changed = self._forget(now_s)
        for node in self.nodes.values():
            for holding in node.holdings.values():
                if holding.state is HoldState.FAILED and holding.retry_at_s <= now_s:
                    holding.apply(HoldEvent.RETRY, now_s=now_s)
                    holding.attempt += 1
                    changed = True
        for _, holding in self._retiring():
            if not holding.serves or now_s >= (holding.retires_at_s or 0.0):
                holding.apply(HoldEvent.WITHDRAW, now_s=now_s)
                changed = True
        return changed

    def release(self, assignment: str, *, now_s: float) -> None:
        """Take in that no gateway sends requests to the nodes that are to let go of a version."""
        for name, holding in self._retiring():
            if name == assignment:
                holding.apply(HoldEvent.WITHDRAW, now_s=now_s)

    # --- decisions ------------------------------------------------------------------------------

    def offers(self, name: str) -> dict[str, int]:
        """What a registered node is to hold: assignment and attempt."""
        node = self.nodes.get(name)
        if node is None or node.state is NodeState.STATIC:
            return {}
        return {
            assignment: holding.attempt
            for assignment, holding in sorted(node.holdings.items())
            if holding.state is not HoldState.WITHDRAWN
        }

    def retiring(self) -> frozenset[str]:
        """Versions that nodes let go of once ``release`` says that no gateway uses them there."""
        return frozenset(name for name, _ in self._retiring())

    def holders(self) -> dict[str, list[Holder]]:
        """The endpoints of every model version that has one, each list by node name."""
        found: dict[str, list[Holder]] = {}
        for _, node in sorted(self.nodes.items()):
            if node.state not in SERVING:
                continue
            holder = Holder(node.info, draining=node.state is NodeState.DRAINING)
            for name, holding in node.holdings.items():
                if holding.is_endpoint:
                    found.setdefault(name, []).append(holder)
        return found

    def serving_nodes(self) -> list[Holder]:
        """Every node with a front door, whatever it holds."""
        return [
            Holder(node.info, draining=node.state is NodeState.DRAINING)
            for _, node in sorted(self.nodes.items())
            if node.state in SERVING
        ]

    def settle(self, assignments: Iterable[str], *, now_s: float) -> frozenset[str]:
        """Those whose endpoints must stay unanswered for now; what settled once stays so."""
        if now_s >= self._grace_ends_s:
            return frozenset()
        held = self.holders() if self._lost_record else {}
        unsettled = [name for name in assignments if name not in self._settled]
        open_still = frozenset(name for name in unsettled if self._is_open(name, held))
        self._settled.update(name for name in unsettled if name not in open_still)
        return open_still

    def nodes_settled(self, *, now_s: float) -> bool:
        """Whether the set of all nodes may be answered."""
        if now_s >= self._grace_ends_s:
            return True
        if self._lost_record:
            return bool(self.nodes)
        return all(node.state is not NodeState.RECORDED for node in self.nodes.values())

    def record(self) -> Record:
        """What the ledger must keep."""
        return Record(
            nodes=tuple(
                NodeRecord(
                    info=node.info,
                    held=tuple(
                        HeldRecord(name, holding.version, holding.attempt)
                        for name, holding in sorted(node.holdings.items())
                        if holding.serves
                    ),
                )
                for _, node in sorted(self.nodes.items())
                if node.state not in (NodeState.STATIC, NodeState.LEFT)
            ),
            versions=tuple(sorted(self.wanted)),
        )

    # --- inside ---------------------------------------------------------------------------------

    def _is_current(self, assignment: str, holding: Holding) -> bool:
        want = self.wanted.get(assignment)
        return want is not None and holding.version == want.version_at(holding.attempt)

    def _edited_while_down(self, node: Node) -> frozenset[str]:
        """What a node is recorded with at a content that is not, or no longer, wanted."""
        if node.state is not NodeState.RECORDED:
            return frozenset()
        return frozenset(
            name
            for name, holding in node.holdings.items()
            if name in self.wanted
            and holding.state is HoldState.READY
            and not self._is_current(name, holding)
        )

    def _retiring(self) -> Iterator[tuple[str, Holding]]:
        for node in self.nodes.values():
            for name, holding in node.holdings.items():
                if holding.retires_at_s is not None:
                    yield name, holding

    def _is_open(self, assignment: str, held: Mapping[str, list[Holder]]) -> bool:
        if self._lost_record:
            return assignment not in held
        if assignment not in self._recorded_names:
            return False
        return any(
            node.state is NodeState.RECORDED and assignment in node.holdings
            for node in self.nodes.values()
        )

    def _registered(self, name: str) -> Node | None:
        node = self.nodes.get(name)
        return None if node is None or node.state is NodeState.STATIC else node

    def _holding(self, name: str, assignment: str) -> Holding | None:
        node = self._registered(name)
        return None if node is None else node.holdings.get(assignment)

    @staticmethod
    def _drop_gone(node: Node, assignment: str) -> None:
        if node.holdings[assignment].state is HoldState.GONE:
            del node.holdings[assignment]

    def _place_on(self, node: Node, changed: Set[str] | None, *, now_s: float) -> None:
        """Offer what the node lacks and withdraw what it should no longer hold.

        With ``changed``, only as far as these versions are concerned.
        """
        wanted = self._in_pool.get(node.info.pool, {})
        for name in wanted if changed is None else wanted.keys() & changed:
            holding = node.holdings.get(name)
            if holding is None:
                ready = node.state is NodeState.STATIC
                state = HoldState.READY if ready else HoldState.OFFERED
                node.holdings[name] = Holding(state, serves=ready, since_s=now_s)
            elif holding.state is HoldState.WITHDRAWN:
                holding.apply(HoldEvent.OFFER, now_s=now_s)
                # Another attempt, since a node that was not told to let go yet would not be sent
                # what it holds, and so would acknowledge nothing.
                holding.attempt = 0 if holding.attempt else 1
            else:
                holding.retires_at_s = None
        held = node.holdings.keys()
        for name in (held if changed is None else held & changed) - wanted.keys():
            holding, placed = node.holdings[name], self.wanted.get(name)
            if node.state is NodeState.STATIC:
                del node.holdings[name]
            elif placed is not None and holding.serves:
                # Gateways have clusters for it still: they must hear of it before the node does.
                holding.retires_at_s = holding.retires_at_s or now_s + limits.RETIRE_S
            elif holding.state is not HoldState.WITHDRAWN:
                holding.apply(HoldEvent.WITHDRAW, now_s=now_s)

    def _place_static(self, static: Mapping[str, NodeInfo], *, now_s: float) -> frozenset[str]:
        """Static nodes that are new or in another pool, on which everything was placed anew."""
        placed = set()
        for name in [n for n, node in self.nodes.items() if node.state is NodeState.STATIC]:
            if name not in static:
                del self.nodes[name]
        for name, info in static.items():
            node = self.nodes.get(name)
            moved = node is not None and node.info.pool != info.pool
            if node is None or node.state is not NodeState.STATIC:
                node = self.nodes[name] = Node(info, NodeState.STATIC, now_s)
                moved = True
            node.info = info
            if moved:
                placed.add(name)
                self._place_on(node, None, now_s=now_s)
        return frozenset(placed)

    def _forget(self, now_s: float) -> bool:
        """Forget nodes long lost: of a pool, at most half within any FORGET_NODE_S."""
        window_start_s = now_s - self._forget_node_s
        self._forgotten = [entry for entry in self._forgotten if entry[0] > window_start_s]
        stale = sorted(
            (node.since_s, name)
            for name, node in self.nodes.items()
            if node.state in GONE and node.since_s <= window_start_s
        )
        changed = False
        for _, name in stale:
            node = self.nodes[name]
            if node.state is not NodeState.LEFT and not self._may_forget(node.info.pool):
                continue
            if node.state is not NodeState.LEFT:
                self._forgotten.append((now_s, node.info.pool))
            node.apply(NodeEvent.FORGET, now_s=now_s)
            del self.nodes[name]
            changed = True
        return changed

    def _may_forget(self, pool: str) -> bool:
        gone = sum(1 for _, forgotten in self._forgotten if forgotten == pool)
        known = sum(1 for node in self.nodes.values() if node.info.pool == pool)
        return gone + 1 <= (known + gone) // 2


def backoff_s(attempt: int) -> float:
    """How long to wait after an attempt failed before offering the next."""
    doubled: float = limits.ASSIGNMENT_BACKOFF_S * 2**attempt
    return min(doubled, limits.ASSIGNMENT_BACKOFF_MAX_S)
