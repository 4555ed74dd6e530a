"""A conversation on one ADS stream, without a network: publish, ask, answer, look."""

from collections.abc import Mapping

from headrace_xds.group import Group
from headrace_xds.messages import (
    Event,
    NodeInfo,
    Rejection,
    Request,
    Response,
    SotwRequest,
    Variant,
)
from headrace_xds.sotw import SotwReader
from headrace_xds.stream import AdsStream
from headrace_xds.translate.resources import Resource

NODE = NodeInfo("n")


class Conversation:
    """A stream, its group, and a client that answers as it is told."""

    def __init__(self, variant: Variant = Variant.DELTA, only: str = "") -> None:
        self.group = Group()
        self.stream = AdsStream(group_for=lambda _: self.group, variant=variant, only=only)
        self.now_s = 100.0

    def publish(self, type_url: str, *resources: Resource) -> list[Response]:
        """Replace everything of a type; what is sent now."""
        shelf = self.group.shelf(type_url)
        changed = shelf.replace({item.name: item for item in resources})
        self.stream.changed(type_url, changed)
        return self.take()

    def withhold(self, type_url: str, *withheld: str) -> list[Response]:
        """Leave these names of a type unanswered, and only these."""
        self.group.shelf(type_url).withheld = frozenset(withheld)
        return self.take()

    def ask(
        self,
        type_url: str,
        *subscribe: str,
        without: tuple[str, ...] = (),
        claims: Mapping[str, str] | None = None,
    ) -> list[Response]:
        self.say(
            Request(
                type_url=type_url,
                subscribe=subscribe,
                unsubscribe=without,
                initial_versions=claims or {},
                node=NODE,
            )
        )
        return self.take()

    def ack(self, response: Response) -> list[Response]:
        """Take a response; what is sent now."""
        self.say(Request(type_url=response.type_url, nonce=response.nonce))
        return self.take()

    def nack(self, response: Response, error: str = "no") -> list[Response]:
        """Refuse a response; what is sent now."""
        self.say(Request(type_url=response.type_url, nonce=response.nonce, error=error))
        return self.take()

    def say(self, request: Request) -> tuple[Event, ...]:
        """Send a request; what the stream makes of it."""
        events = self.stream.receive(request)
        assert not isinstance(events, Rejection), events
        return events

    def take(self) -> list[Response]:
        """What is sent now."""
        return list(self.stream.take(self.now_s))


class SotwConversation(Conversation):
    """The same over SotW: each request carries all names that were asked for last."""

    def __init__(self, only: str = "") -> None:
        super().__init__(Variant.SOTW, only)
        self.reader = SotwReader()
        self.names: dict[str, tuple[str, ...]] = {}

    def want(
        self, type_url: str, *names: str, nonce: str = "", version: str = ""
    ) -> list[Response]:
        """Ask for these names and no others; what is sent now."""
        self.names[type_url] = names
        self.hear(SotwRequest(type_url, nonce, names, version, node=NODE))
        return self.take()

    def ack(self, response: Response) -> list[Response]:
        """Take a response; what is sent now."""
        names = self.names[response.type_url]
        self.hear(SotwRequest(response.type_url, response.nonce, names, "v"))
        return self.take()

    def nack(self, response: Response, error: str = "no") -> list[Response]:
        """Refuse a response; what is sent now."""
        names = self.names[response.type_url]
        self.hear(SotwRequest(response.type_url, response.nonce, names, error=error))
        return self.take()

    def hear(self, request: SotwRequest) -> tuple[Event, ...] | None:
        """Send a request; what the stream makes of it, None when it is outdated."""
        read = self.reader.read(request, self.stream.subscription(request.type_url))
        return None if read is None else self.say(read)


def contents(responses: list[Response]) -> list[tuple[set[str], set[str]]]:
    """Names sent, and names removed, by each response."""
    return [({r.name for r in one.resources}, set(one.removed)) for one in responses]
