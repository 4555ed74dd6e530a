"""A hub whose responses and observations are kept for a test to look at."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from inspect import isawaitable

from headrace_xds.hub import Hub, Observer
from headrace_xds.messages import NodeInfo, Response
from headrace_xds.translate.resources import Resource
from headrace_xds.wire import Encoder


@dataclass
class Recorder:
    """Observer that remembers everything it is told."""

    nodes: list[NodeInfo] = field(default_factory=list)
    streams: int = 0
    claims: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    acks: list[tuple[str, str, str]] = field(default_factory=list)
    nacks: list[tuple[str, tuple[str, ...], str]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    waiting: list[Mapping[str, frozenset[str]]] = field(default_factory=list)

    def connected(self, stream_id: int, node: NodeInfo) -> None:
        self.nodes.append(node)
        self.streams += 1

    def disconnected(self, stream_id: int, node: NodeInfo) -> None:
        self.streams -= 1

    def claimed(self, node: NodeInfo, type_url: str, versions: Mapping[str, str]) -> None:
        self.claims.append((type_url, versions))

    def acked(self, node: NodeInfo, type_url: str, versions: Mapping[str, str]) -> None:
        self.acks.extend((type_url, name, version) for name, version in versions.items())

    def nacked(
        self, node: NodeInfo, type_url: str, versions: Mapping[str, str], message: str
    ) -> None:
        self.nacks.append((type_url, tuple(versions), message))

    def leaving(self, node: NodeInfo, type_url: str) -> None:
        self.left.append(type_url)

    def held_back(self, node: NodeInfo, missing: Mapping[str, frozenset[str]]) -> None:
        self.waiting.append(missing)

    def holds(self, *resources: Resource) -> bool:
        """Whether every one of these versions was acknowledged."""
        return all((item.type_url, item.name, item.version) in self.acks for item in resources)


class RecordingEncoder(Encoder):
    """Encoder that remembers what it encoded."""

    def __init__(self) -> None:
        super().__init__()
        self.responses: list[Response] = []

    def encode(self, response: Response) -> bytes:
        self.responses.append(response)
        return super().encode(response)

    def count(self, resource: Resource) -> int:
        """How often exactly this resource was sent."""
        return sum(resource in response.resources for response in self.responses)

    def removals(self, type_url: str) -> list[str]:
        """Names that were told to be gone, in order."""
        return [n for r in self.responses if r.type_url == type_url for n in r.removed]


class RecordedHub:
    """A hub with its recorders, and publishing by list."""

    def __init__(
        self,
        group_of: Callable[[NodeInfo], str] = lambda node: node.id,
        observer: Observer | None = None,
    ) -> None:
        self.seen = Recorder()
        self.sent = RecordingEncoder()
        self.hub = Hub(observer=observer or self.seen, group_of=group_of, now=time.monotonic)
        self.hub.encoder = self.sent

    def publish(self, group: str, type_url: str, *resources: Resource) -> None:
        self.hub.publish(group, type_url, {resource.name: resource for resource in resources})


async def until(
    condition: Callable[[], bool | Awaitable[bool]], *, within_s: float = 8.0, what: str = ""
) -> None:
    """Wait until something holds; fails after a deadline."""
    deadline_s = time.monotonic() + within_s
    while True:
        answer = condition()
        if await answer if isawaitable(answer) else answer:
            return
        assert time.monotonic() < deadline_s, f"not within {within_s} s: {what}"
        await asyncio.sleep(0.01)
