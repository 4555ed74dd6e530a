"""Which gateway is given which secrets, as its stream has it."""

from headrace import ir, names
from headrace.policy.membership import Membership
from headrace.policy.record import Record
from headrace_xds.control import Compiled, Control, Resources
from headrace_xds.fleet import Fleet
from headrace_xds.hub import Connection
from headrace_xds.messages import NodeInfo, Request, Response
from headrace_xds.publish.publisher import Publisher
from headrace_xds.source.secrets import Material, Reading
from headrace_xds.translate import tls
from headrace_xds.translate.resources import SECRET
from tests.fakes.ads_recorder import RecordedHub
from tests.fakes.mesh_ir import mesh

SECURE = ir.Gateway("eu", "eu", "127.0.0.1", 1, ir.Tls("gateway", "callers"))
PLAIN = ir.Gateway("us", "us", "127.0.0.1", 2)
PAIR = Material(b"chain", b"key")
CA = Material(ca=b"certificates")
BOTH = (names.GATEWAY_CERTIFICATE, names.CLIENT_CA)


class World:
    """A control server whose gateways ask for secrets."""

    def __init__(self, *gateways: ir.Gateway) -> None:
        fleet = Fleet()
        publisher = Publisher(fleet, now=lambda: 1.0, wall_s=lambda: 1.0)
        self.recorded = RecordedHub(publisher.channel_of)
        publisher.attach(self.recorded.hub)
        self.control = Control(
            publications=publisher, membership=Membership(Record(), now_s=0), fleet=fleet
        )
        self.regions = tuple(ir.Region(g.region, ("a",), (g,), ()) for g in gateways)

    def configure(self, reading: Reading) -> None:
        self.control.secrets.take(reading)
        made = mesh(regions=self.regions)
        of_none: dict[str, Resources] = {
            g.name: {} for region in self.regions for g in region.gateways
        }
        self.control.configure(Compiled(made, of_none), now_s=0)

    def ask(self, gateway: ir.Gateway, *wanted: str) -> Connection:
        connection = self.recorded.hub.open(lambda: None)
        assert isinstance(connection, Connection)
        node = NodeInfo(names.gateway_node_id(gateway.name))
        connection.receive(Request(SECRET, subscribe=wanted, node=node))
        return connection

    def told(self, connection: Connection) -> list[Response]:
        """What is sent now; it is acknowledged."""
        before = len(self.recorded.sent.responses)
        connection.take()
        responses = self.recorded.sent.responses[before:]
        for response in responses:
            connection.receive(Request(SECRET, nonce=response.nonce))
        return responses


def test_a_gateway_is_given_the_secrets_that_it_names_and_no_other_gateway_is() -> None:
    world = World(SECURE, PLAIN)
    world.configure(Reading({"gateway": PAIR, "callers": CA, "other": PAIR}))
    (given,) = world.told(world.ask(SECURE, *BOTH))
    assert set(given.resources) == {
        tls.certificate(PAIR.certificate, PAIR.key),
        tls.client_ca(CA.ca),
    }
    (given,) = world.told(world.ask(PLAIN, *BOTH))
    assert (given.resources, sorted(given.removed)) == ((), sorted(BOTH))


def test_a_secret_that_is_not_there_is_not_told_to_be_gone_and_is_sent_once_it_comes() -> None:
    world = World(SECURE)
    world.configure(Reading({"gateway": PAIR}))
    connection = world.ask(SECURE, *BOTH)
    (given,) = world.told(connection)
    assert ([r.name for r in given.resources], given.removed) == ([names.GATEWAY_CERTIFICATE], ())
    world.control.secrets.take(Reading({"gateway": PAIR, "callers": CA}))
    world.control.publish_secrets()
    (given,) = world.told(connection)
    assert (given.resources, given.removed) == ((tls.client_ca(CA.ca),), ())


def test_rotation_sends_the_same_name_with_other_bytes_and_nothing_else() -> None:
    world = World(SECURE)
    world.configure(Reading({"gateway": PAIR, "callers": CA}))
    connection = world.ask(SECURE, *BOTH)
    world.told(connection)
    other = Material(b"other chain", b"other key")
    world.control.secrets.take(Reading({"gateway": other, "callers": CA}))
    world.control.publish_secrets()
    (given,) = world.told(connection)
    assert given.resources == (tls.certificate(other.certificate, other.key),)
    world.control.publish_secrets()
    assert world.told(connection) == []
