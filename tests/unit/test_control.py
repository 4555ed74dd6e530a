"""What the control server tells gateways and sidecars, decision by decision."""

from typing import Any

import msgspec
import pytest
from google.protobuf.json_format import MessageToDict
from xds.type.v3.typed_struct_pb2 import TypedStruct

from headrace import assignment, ir, limits, names
from headrace.policy.membership import Membership
from headrace.policy.record import NodeInfo, Record
from headrace.signals import NodeLoad, VersionLoad
from headrace_xds.control import Compiled, Control
from headrace_xds.fleet import Fleet
from headrace_xds.translate.resources import CLUSTER, ENDPOINTS, resource
from tests.fakes import mesh_ir
from tests.fakes.published import Published

VISION = "vision@1"
CLUSTER_NAME = names.cluster("vision", 1, "http")
ASSIGNMENTS = names.ASSIGNMENT_TYPE_URL


def pool(name: str, region: str, *static: ir.GpuNode) -> ir.Pool:
    return ir.Pool(name, region, f"{region}-1", "cpu", 2**30, not static, static)


def a_mesh(*versions: ir.ServedVersion, pools: tuple[ir.Pool, ...] = ()) -> ir.Mesh:
    regions = (
        ir.Region("eu", ("eu-1",), (ir.Gateway("eu", "eu", "127.0.0.1", 1),), ("us",)),
        ir.Region("us", ("us-1",), (ir.Gateway("us", "us", "127.0.0.1", 2),), ()),
    )
    pools = pools or (pool("pool", "eu"), pool("pool-us", "us"))
    return mesh_ir.mesh(*versions, regions=regions, pools=pools)


def vision(version: int = 1, **changes: Any) -> ir.ServedVersion:
    return mesh_ir.served("vision", version, **{"pools": ("pool", "pool-us"), **changes})


def compiled(mesh: ir.Mesh) -> Compiled:
    """A configuration whose clusters are empty messages: what they hold matters elsewhere."""
    clusters = {
        name: resource(CLUSTER, name, b"\x0a" + bytes([len(name)]) + name.encode())
        for served in mesh.versions
        for name in [names.cluster(served.model, served.version, "http")]
    }
    return Compiled(mesh, {"eu": {CLUSTER: clusters}, "us": {CLUSTER: clusters}})


class World:
    """A control server with its surroundings."""

    def __init__(self, record: Record | None = None) -> None:
        self.published = Published()
        self.membership = Membership(record or Record(), now_s=0)
        self.fleet = Fleet()
        self.control = Control(
            publications=self.published, membership=self.membership, fleet=self.fleet
        )

    def configure(self, *versions: ir.ServedVersion, now_s: float = 0, **mesh: Any) -> None:
        self.control.configure(compiled(a_mesh(*versions, **mesh)), now_s=now_s)
        self.turn(now_s)

    def turn(self, now_s: float) -> Record | None:
        record = self.control.advance(now_s=now_s)
        self.control.publish()
        return record

    def join(self, name: str, *held: str, pool: str = "pool", now_s: float = 1) -> None:
        info = NodeInfo(
            name=name,
            pool=pool,
            region="",
            zone="",
            address="127.0.0.1",
            http_port=1,
            grpc_port=2,
            orca_port=18082,
        )
        self.membership.connect(len(self.membership.nodes), info, now_s=now_s)
        self.membership.claim(name, {}, now_s=now_s)
        for assignment_name in held:
            self.membership.ack(name, assignment_name, "v", now_s=now_s)
        self.control.note_membership()
        self.turn(now_s)

    def load(self, name: str, utilization: float, *, now_s: float, ready: bool = True) -> None:
        load = VersionLoad(
            model="vision",
            version=1,
            ready=ready,
            queue=0,
            running=0,
            utilization=utilization,
            rps=1,
        )
        self.control.observe(NodeLoad(node=name, observed_at_s=now_s, rps=1, versions=(load,)))


def offered(world: World, node: str) -> dict[str, assignment.Assignment]:
    found = {}
    for name, item in world.published.resources[f"gpu/{node}", ASSIGNMENTS].items():
        struct = TypedStruct.FromString(item.body)
        assert struct.type_url == names.ASSIGNMENT_KIND
        found[name] = assignment.from_json(MessageToDict(struct.value))
    return found


def test_a_node_is_offered_the_assignments_of_its_pool() -> None:
    world = World()
    world.configure(vision(), vision(2, pools=("pool-us",)))
    world.join("n1")
    assert offered(world, "n1") == {VISION: vision().assignment}


def test_an_attempt_makes_an_assignment_a_new_resource() -> None:
    world = World()
    world.configure(vision())
    world.join("n1")
    before = world.published.resources["gpu/n1", ASSIGNMENTS][VISION].version
    world.membership.nack("n1", VISION, "no", now_s=2)
    world.turn(2 + limits.ASSIGNMENT_BACKOFF_S)
    assert offered(world, "n1")[VISION].attempt == 1
    assert world.published.resources["gpu/n1", ASSIGNMENTS][VISION].version != before


def test_endpoints_follow_acknowledgements() -> None:
    world = World()
    world.configure(vision())
    assert world.published.endpoints("eu") == {}
    world.join("n1", VISION)
    assert world.published.endpoints("eu").keys() == {"n1"}


def test_a_region_sees_its_own_nodes_first_and_only_regions_it_may_fail_over_to() -> None:
    world = World()
    world.configure(vision())
    world.join("n-eu", VISION)
    world.join("n-us", VISION, pool="pool-us")
    eu, us = world.published.endpoints("eu"), world.published.endpoints("us")
    assert {name: priority for name, (priority, _, _) in eu.items()} == {"n-eu": 0, "n-us": 1}
    assert {name: priority for name, (priority, _, _) in us.items()} == {"n-us": 0}


def test_nothing_new_is_published_when_nothing_changed() -> None:
    world = World()
    world.configure(vision())
    world.join("n1", VISION)
    count = world.published.count
    for now_s in range(2, 20):
        assert world.turn(now_s) is None
    assert world.published.count == count


def test_what_must_be_recorded_is_handed_out_before_it_is_published() -> None:
    world = World()
    world.configure(vision())
    world.join("n1")
    world.membership.ack("n1", VISION, "v", now_s=2)
    world.control.note_membership()
    record = world.control.advance(now_s=2)
    assert record is not None
    assert [held.name for held in record.nodes[0].held] == [VISION]
    assert world.published.endpoints("eu") == {}


def test_the_endpoints_of_recorded_nodes_are_withheld_and_never_empty_after_a_restart() -> None:
    before = World()
    before.configure(vision())
    before.join("n1", VISION)
    after = World(before.membership.record())
    after.configure(vision())
    assert CLUSTER_NAME in after.published.withheld["gateway/eu"]
    assert names.node_cluster("http") in after.published.withheld["gateway/eu"]
    after.turn(limits.RETURN_GRACE_S)
    assert after.published.withheld["gateway/eu"] == frozenset()
    assert after.published.endpoints("eu").keys() == {"n1"}


def test_requests_without_a_model_are_spread_over_nodes_per_pool_up_to_a_limit() -> None:
    world = World()
    world.configure(vision())
    for number in range(limits.NODES_PER_POOL + 2):
        world.join(f"n{number:02}", VISION)
    found = world.published.endpoints("eu", names.node_cluster("http"))
    assert len(found) == limits.NODES_PER_POOL
    assert len(world.published.endpoints("eu")) == limits.NODES_PER_POOL + 2
    world.membership.leave("n00", now_s=3)
    world.control.note_membership()
    world.turn(3)
    # One that drains makes room for one that does not.
    assert "n00" not in world.published.endpoints("eu", names.node_cluster("http"))


def test_least_loaded_weights_follow_load_and_others_do_not() -> None:
    for balance, moved in (("least-loaded", True), ("utilization", False)):
        world = World()
        world.configure(vision(balance=balance))
        world.join("busy", VISION)
        world.join("idle", VISION)
        world.load("busy", 0.9, now_s=2)
        world.load("idle", 0.1, now_s=2)
        world.turn(2)
        weights = {name: weight for name, (_, weight, _) in world.published.endpoints("eu").items()}
        assert (weights["busy"] < weights["idle"]) is moved


def test_weights_are_pushed_at_most_five_times_a_second() -> None:
    world = World()
    world.configure(vision(balance="least-loaded"))
    world.join("n1", VISION)
    count = world.published.count
    for step in range(100):
        world.load("n1", (step % 2) * 0.9, now_s=2 + step / 100)
        world.turn(2 + step / 100)
    one_push = 2
    assert world.published.count - count <= one_push * (1 + 1 / limits.WEIGHT_PUSH_PERIOD_S)


def test_a_stale_report_gives_the_median_weight() -> None:
    world = World()
    world.configure(vision(balance="least-loaded"))
    for name, utilization in (("n1", 0.9), ("n2", 0.5), ("n3", 0.1)):
        world.join(name, VISION)
        world.load(name, utilization, now_s=2)
    world.turn(2)
    later_s = 2 + limits.SIGNAL_STALE_S + 1
    for name, utilization in (("n2", 0.5), ("n3", 0.1)):
        world.load(name, utilization, now_s=later_s)
    world.turn(later_s)
    weights = {name: weight for name, (_, weight, _) in world.published.endpoints("eu").items()}
    assert weights["n1"] == weights["n3"], "the higher of the two middle weights"


def test_a_node_that_reports_a_version_unready_is_unhealthy_until_the_report_is_stale() -> None:
    unhealthy, healthy = 2, 1
    world = World()
    world.configure(vision())
    world.join("n1", VISION)
    world.load("n1", 0.1, now_s=2, ready=False)
    world.turn(2)
    assert world.published.endpoints("eu")["n1"][2] == unhealthy
    world.turn(3 + limits.SIGNAL_STALE_S)
    assert world.published.endpoints("eu")["n1"][2] == healthy


# --- versions that leave ------------------------------------------------------------------------


def retiring(*, gateways: tuple[str, ...]) -> World:
    world = World()
    world.configure(vision(), vision(2))
    world.join("n1", VISION, "vision@2")
    for number, gateway in enumerate(gateways):
        world.fleet.connected(number, f"gateway/{gateway}", f"gateway/{gateway}", "", at_s=1)
        world.fleet.claimed(f"gateway/{gateway}", CLUSTER, {"m-vision-2-http": "x"})
    world.configure(vision(), now_s=10)
    return world


def test_a_dropped_version_is_served_until_every_gateway_let_go_of_its_cluster() -> None:
    world = retiring(gateways=("eu", "us"))
    cluster = names.cluster("vision", 2, "http")
    assert world.published.endpoints("us", cluster) == {}, "us has no node"
    assert world.published.endpoints("eu", cluster).keys() == {"n1"}
    assert "vision@2" in offered(world, "n1")
    for gateway in ("gateway/eu", "gateway/us"):
        assert "vision@2" in offered(world, "n1")
        world.fleet.acked(gateway, CLUSTER, {"m-vision-2-http": ""}, at_s=11)
        world.turn(11)
    assert offered(world, "n1").keys() == {VISION}
    assert cluster not in world.published.resources["gateway/eu", ENDPOINTS]


def test_a_gateway_that_is_away_is_waited_for_but_not_for_ever() -> None:
    world = retiring(gateways=("eu",))
    world.fleet.acked("gateway/eu", CLUSTER, {"m-vision-2-http": ""}, at_s=11)
    world.turn(11)
    assert "vision@2" in offered(world, "n1")
    world.turn(10 + limits.RETIRE_S)
    assert "vision@2" not in offered(world, "n1")


def moved(*, told: tuple[str, ...] = ("eu", "us")) -> tuple[World, str]:
    """A version that only the other pool is to hold; gateways that connected, and its cluster."""
    world, cluster = World(), names.cluster("vision", 1, "http")
    world.configure(vision())
    world.join("n1", VISION)
    for number, gateway in enumerate(told):
        group = f"gateway/{gateway}"
        world.fleet.connected(number, group, group, "", at_s=1)
        world.fleet.claimed(group, ENDPOINTS, versions(world, gateway))
    world.configure(vision(pools=("pool-us",)), now_s=10)
    return world, cluster


def versions(world: World, gateway: str) -> dict[str, str]:
    published = world.published.resources[f"gateway/{gateway}", ENDPOINTS]
    return {name: item.version for name, item in published.items()}


def test_nodes_of_a_pool_that_is_taken_out_unload_after_gateways_took_the_endpoints() -> None:
    world, cluster = moved()
    assert world.published.endpoints("eu", cluster) == {}
    world.turn(11)
    assert VISION in offered(world, "n1")
    for name in (cluster, names.cluster("vision", 1, "grpc")):
        assert VISION in offered(world, "n1")
        version = versions(world, "eu")[name]
        world.fleet.acked("gateway/eu", ENDPOINTS, {name: version}, at_s=12)
        world.turn(12)
    assert VISION not in offered(world, "n1")


def test_nodes_of_a_pool_that_is_taken_out_do_not_wait_for_an_absent_gateway_for_ever() -> None:
    world, _ = moved(told=("us",))
    world.turn(11)
    assert VISION in offered(world, "n1")
    world.turn(10 + limits.RETIRE_S)
    assert VISION not in offered(world, "n1")


def test_a_version_that_comes_back_stops_retiring() -> None:
    world = retiring(gateways=("eu",))
    world.configure(vision(), vision(2), now_s=12)
    world.turn(12 + limits.RETIRE_S)
    assert "vision@2" in offered(world, "n1")


def test_static_nodes_are_endpoints_without_a_sidecar_stream() -> None:
    node = ir.GpuNode("s1", "pool", "10.0.0.1", 1, 2, 18082)
    world = World()
    world.configure(vision(), pools=(pool("pool", "eu", node), pool("pool-us", "us")))
    assert world.published.endpoints("eu").keys() == {"s1"}


def test_a_forgotten_node_is_offered_nothing_any_more() -> None:
    world = World()
    world.configure(vision())
    world.join("n1")
    world.join("n2")
    world.membership.disconnect(0, "n1", now_s=2)
    world.control.note_membership()
    world.turn(3 + limits.FORGET_NODE_S)
    assert ("gpu/n1", ASSIGNMENTS) not in world.published.resources
    assert world.fleet.groups() == {"gateway/eu", "gateway/us", "gpu/n2"}


@pytest.mark.parametrize("change", ["artifact", "executor"])
def test_an_edit_of_a_version_is_offered_as_a_new_resource(change: str) -> None:
    world = World()
    world.configure(vision())
    world.join("n1", VISION)
    edited = msgspec.structs.replace(vision().assignment, **{change: "other"})
    world.configure(vision(assignment=edited), now_s=5)
    assert offered(world, "n1") == {VISION: edited}
    assert world.published.endpoints("eu").keys() == {"n1"}


def test_a_version_is_kept_while_a_proxy_is_served_routes_to_it_however_long() -> None:
    world = World()
    world.configure(vision(1), vision(2))
    world.join("n1", "vision@1", "vision@2")
    world.published.in_use = frozenset({names.cluster("vision", 1, "http")})
    world.configure(vision(2), now_s=10)
    world.turn(10 + 2 * limits.RETIRE_S)
    assert world.control.retiring == {"vision@1"}
    world.published.in_use = frozenset()
    world.turn(11 + 2 * limits.RETIRE_S)
    assert world.control.retiring == frozenset()
