"""Bytes of delta-ADS messages, as the client writes and reads them."""

from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import json_format

from headrace_sidecar.adsclient.messages import NodeInfo, Received, Request, Response

_INVALID_ARGUMENT = 3


def encode_request(request: Request) -> bytes:
    """Bytes of a ``DeltaDiscoveryRequest``."""
    message = discovery_pb2.DeltaDiscoveryRequest(
        type_url=request.type_url,
        response_nonce=request.nonce,
        resource_names_subscribe=request.subscribe,
        resource_names_unsubscribe=request.unsubscribe,
        initial_resource_versions=request.initial_versions,
    )
    if request.error is not None:
        message.error_detail.code = _INVALID_ARGUMENT
        message.error_detail.message = request.error
    if request.node is not None:
        _fill_node(message.node, request.node)
    encoded: bytes = message.SerializeToString()
    return encoded


def decode_response(data: bytes) -> Response:
    """Response in the bytes of a ``DeltaDiscoveryResponse``; raises ``DecodeError``."""
    message = discovery_pb2.DeltaDiscoveryResponse.FromString(data)
    return Response(
        type_url=message.type_url,
        nonce=message.nonce,
        resources=tuple(
            Received(item.name, item.version, item.resource.type_url, item.resource.value)
            for item in message.resources
        ),
        removed=tuple(message.removed_resources),
    )


def _fill_node(message: "discovery_pb2.core_dot_base__pb2.Node", node: NodeInfo) -> None:
    message.id = node.id
    message.cluster = node.cluster
    message.locality.region = node.region
    message.locality.zone = node.zone
    message.user_agent_name = "headrace"
    message.user_agent_version = node.build
    json_format.ParseDict(dict(node.metadata), message.metadata)
