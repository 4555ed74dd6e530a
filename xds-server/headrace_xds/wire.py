"""Bytes of xDS messages of both variants, as the server reads and writes them.

A response is encoded once for all streams that need the same; only its nonce is appended for each.
"""

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Iterable

from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import json_format

from headrace import limits
from headrace.metrics import OTHER
from headrace_xds.messages import NodeInfo, Request, Response, SotwRequest, Variant
from headrace_xds.translate.resources import VERSION_BYTES
from headrace_xds.typepolicy import POLICIES

_NONCE_TAG = b"\x2a"
"""Field 5 of both kinds of response, length-delimited. Fields may come in any order."""
_LARGEST_SHORT_LENGTH = 127

_Versions = tuple[tuple[str, str], ...]
_Key = tuple[Variant, str, _Versions, tuple[str, ...]]


def decode_request(data: bytes, *, implied: str = "") -> Request:
    """Request in the bytes of a ``DeltaDiscoveryRequest``; raises ``DecodeError``.

    A request that names no type has the implied one.
    """
    message = discovery_pb2.DeltaDiscoveryRequest.FromString(data)
    return Request(
        type_url=message.type_url or implied,
        nonce=message.response_nonce,
        subscribe=tuple(message.resource_names_subscribe),
        unsubscribe=tuple(message.resource_names_unsubscribe),
        initial_versions=dict(message.initial_resource_versions),
        error=message.error_detail.message if message.HasField("error_detail") else None,
        node=_node(message.node) if message.HasField("node") else None,
    )


def decode_sotw_request(data: bytes, *, implied: str = "") -> SotwRequest:
    """Request in the bytes of a ``DiscoveryRequest``; raises ``DecodeError``."""
    message = discovery_pb2.DiscoveryRequest.FromString(data)
    return SotwRequest(
        type_url=message.type_url or implied,
        nonce=message.response_nonce,
        names=tuple(message.resource_names),
        version=message.version_info,
        error=message.error_detail.message if message.HasField("error_detail") else None,
        node=_node(message.node) if message.HasField("node") else None,
    )


def _node(message: "discovery_pb2.envoy_dot_config_dot_core_dot_v3_dot_base__pb2.Node") -> NodeInfo:
    build = message.user_agent_version
    if message.HasField("user_agent_build_version"):
        version = message.user_agent_build_version.version
        build = f"{version.major_number}.{version.minor_number}.{version.patch}"
    return NodeInfo(
        id=message.id,
        cluster=message.cluster,
        region=message.locality.region,
        zone=message.locality.zone,
        metadata=json_format.MessageToDict(message.metadata),
        build=build,
    )


class Encoder:
    """Encodes responses and keeps the bodies, the latest used ones up to a limit."""

    def __init__(self) -> None:
        self.encoded: Counter[str] = Counter()
        """Responses by type URL since the start."""
        self._bodies: OrderedDict[_Key, bytes] = OrderedDict()
        self._size_bytes = 0

    def __repr__(self) -> str:
        """One line for operators."""
        return f"Encoder(bodies={len(self._bodies)} bytes={self._size_bytes})"

    def encode(self, response: Response) -> bytes:
        """Bytes of a ``DeltaDiscoveryResponse`` or a ``DiscoveryResponse``."""
        # Clients choose type URLs; what is not served is counted as one.
        self.encoded[response.type_url if response.type_url in POLICIES else OTHER] += 1
        nonce = response.nonce.encode()
        assert len(nonce) <= _LARGEST_SHORT_LENGTH, "nonces are short counters"
        return self._body(response) + _NONCE_TAG + bytes((len(nonce),)) + nonce

    def _body(self, response: Response) -> bytes:
        versions = tuple((resource.name, resource.version) for resource in response.resources)
        delta = response.variant is Variant.DELTA
        removed = response.removed if delta else ()
        key = (response.variant, response.type_url, versions, removed)
        body = self._bodies.get(key)
        if body is not None:
            self._bodies.move_to_end(key)
            return body
        body = _encode_delta(response) if delta else _encode_sotw(response, versions)
        self._bodies[key] = body
        self._size_bytes += len(body)
        while self._size_bytes > limits.ENCODED_RESPONSES_BYTES and len(self._bodies) > 1:
            _, dropped = self._bodies.popitem(last=False)
            self._size_bytes -= len(dropped)
        return body


def version_info(versions: Iterable[tuple[str, str]]) -> str:
    """Version of a SotW response: a hash of what is in it, the same on every replica."""
    digest = hashlib.blake2b(digest_size=VERSION_BYTES)
    for name, version in versions:
        digest.update(f"{len(name)}:{name}{version};".encode())
    return digest.hexdigest()


def _encode_sotw(response: Response, versions: _Versions) -> bytes:
    message = discovery_pb2.DiscoveryResponse(
        type_url=response.type_url, version_info=version_info(versions)
    )
    for resource in response.resources:
        message.resources.add(type_url=resource.type_url, value=resource.body)
    body: bytes = message.SerializeToString()
    return body


def _encode_delta(response: Response) -> bytes:
    message = discovery_pb2.DeltaDiscoveryResponse(
        type_url=response.type_url, removed_resources=response.removed
    )
    for resource in response.resources:
        item = message.resources.add(name=resource.name, version=resource.version)
        item.resource.type_url = resource.type_url
        item.resource.value = resource.body
    body: bytes = message.SerializeToString()
    return body
