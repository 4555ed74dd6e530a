"""Many delta xDS clients in one process: ``python -m tests.bench.xds_clients SERVER STREAMS``.

They ask for what an Envoy asks for and acknowledge everything. A line on standard output tells of
every small change once the last stream has acknowledged it. They hold nothing, to leave the
machine to the server: what they claim after a reconnect is what the first of them was sent.
"""

import argparse
import asyncio
import contextlib
import json
import random
import time
from collections import Counter
from typing import Any, Final

import grpc
import grpc.aio
import uvloop
from envoy.service.discovery.v3 import discovery_pb2

from headrace import names
from headrace_xds.translate.resources import (
    CLUSTER,
    ENDPOINTS,
    EXTENSION,
    LISTENER,
    ROUTES,
    RUNTIME,
    SCOPES,
)

GATEWAYS: Final = ("eu", "us")
METHOD: Final = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
BUILD: Final = (1, 40, 0)
SMALL: Final = 8
"""Resources of a response that is taken for a change, not for a beginning."""
_STREAMS_PER_CHANNEL: Final = 20
_BACK_OFF_S: Final = 0.5
_QUIET_S: Final = 2.0
_ORDER: Final = (ENDPOINTS, LISTENER, SCOPES, ROUTES, EXTENSION, RUNTIME, CLUSTER)
"""Types in the order in which Envoy asks for them after a reconnect."""


class Known:
    """What one client was sent first: names to ask for, and versions to claim."""

    def __init__(self) -> None:
        self.versions: dict[str, dict[str, str]] = {type_url: {} for type_url in _ORDER}
        self.claimed: dict[str, bytes] = {}

    def names(self, type_url: str) -> list[str]:
        """Names that are asked for."""
        if type_url == ENDPOINTS:
            return sorted(self.versions[CLUSTER])
        if type_url == ROUTES:
            # A table has the name of its scope.
            return sorted(self.versions[SCOPES])
        return ["*"]

    def freeze(self) -> None:
        """From now on every stream begins with these claims."""
        for type_url in _ORDER:
            request = discovery_pb2.DeltaDiscoveryRequest(
                type_url=type_url,
                resource_names_subscribe=self.names(type_url),
                initial_resource_versions=self.versions[type_url],
            )
            self.claimed[type_url] = request.SerializeToString()


class Clients:
    """Every stream, and how far all of them are with each change."""

    def __init__(self, server: str, streams: int) -> None:
        self._server = server
        self._streams = streams
        self._known = Known()
        self._acked: Counter[tuple[str, str, str, str]] = Counter()
        self._heard = 0
        self._never = asyncio.Event()

    async def run(self) -> None:
        """Open the first, then the others; until killed."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep(0, self._channel(0)))
            await self._quiet()
            self._known.freeze()
            channel = self._channel(1)
            for number in range(1, self._streams):
                if number % _STREAMS_PER_CHANNEL == 0:
                    channel = self._channel(number)
                tasks.create_task(self._keep(number, channel))
            tell(event="opened")

    def _channel(self, number: int) -> grpc.aio.Channel:
        options = [
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_receive_message_length", -1),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 300),
            ("bench.channel", number),
        ]
        return grpc.aio.insecure_channel(self._server, options=options)

    async def _quiet(self) -> None:
        """Wait until the first client has been sent route tables, and nothing more for a while."""
        heard = -1
        while self._heard != heard or not self._known.versions[ROUTES]:
            heard = self._heard
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_QUIET_S):
                    await self._never.wait()

    async def _keep(self, number: int, channel: grpc.aio.Channel) -> None:
        """Keep one stream open."""
        call: Any = channel.stream_stream(
            METHOD, request_serializer=None, response_deserializer=None
        )
        while True:
            try:
                await self._stream(number, call(wait_for_ready=True))
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await asyncio.sleep(random.uniform(0, _BACK_OFF_S))

    async def _stream(self, number: int, stream: Any) -> None:
        for request in self._opening(number):
            await stream.write(request)
        while isinstance(data := await stream.read(), bytes):
            response = discovery_pb2.DeltaDiscoveryResponse.FromString(data)
            ack = discovery_pb2.DeltaDiscoveryRequest(
                type_url=response.type_url, response_nonce=response.nonce
            )
            await stream.write(ack.SerializeToString())
            if self._known.claimed:
                self._count(GATEWAYS[number % len(GATEWAYS)], response)
            else:
                self._learn(response)
                await self._follow(stream, response.type_url)

    def _learn(self, response: Any) -> None:
        self._heard += 1
        versions = self._known.versions[response.type_url]
        versions.update((item.name, item.version) for item in response.resources)

    async def _follow(self, stream: Any, type_url: str) -> None:
        """The first client asks for what the resources it was just sent name."""
        follows = {CLUSTER: ENDPOINTS, SCOPES: ROUTES}.get(type_url)
        if follows is not None:
            request = discovery_pb2.DeltaDiscoveryRequest(
                type_url=follows, resource_names_subscribe=self._known.names(follows)
            )
            await stream.write(request.SerializeToString())

    def _opening(self, number: int) -> list[bytes]:
        gateway = names.gateway_node_id(GATEWAYS[number % len(GATEWAYS)])
        message = discovery_pb2.DeltaDiscoveryRequest()
        message.node.id = f"{gateway}/{number}"
        version = message.node.user_agent_build_version.version
        version.major_number, version.minor_number, version.patch = BUILD
        # Messages that are written one after the other are parsed as one.
        node = message.SerializeToString()
        if self._known.claimed:
            first, *others = (self._known.claimed[type_url] for type_url in _ORDER)
            return [first + node, *others]
        requests = [
            discovery_pb2.DeltaDiscoveryRequest(
                type_url=type_url, resource_names_subscribe=["*"]
            ).SerializeToString()
            for type_url in (CLUSTER, LISTENER, SCOPES, EXTENSION, RUNTIME)
        ]
        return [requests[0] + node, *requests[1:]]

    def _count(self, gateway: str, response: Any) -> None:
        """Tell of a change that every stream of a gateway has acknowledged."""
        if len(response.resources) > SMALL:
            return
        members = len(range(GATEWAYS.index(gateway), self._streams, len(GATEWAYS)))
        for item in response.resources:
            key = gateway, response.type_url, item.name, item.version
            self._acked[key] += 1
            # What comes back one day is the same version again.
            if self._acked[key] % members == 0:
                tell(gateway=gateway, type=response.type_url, name=item.name)


def tell(**facts: Any) -> None:
    """One line of JSON, with the time."""
    print(json.dumps({**facts, "at_s": time.monotonic()}), flush=True)


def main() -> None:
    """Run until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("server")
    parser.add_argument("streams", type=int)
    flags = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(Clients(flags.server, flags.streams).run())


if __name__ == "__main__":
    main()
