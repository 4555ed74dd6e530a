"""A mesh as one static file, for an Envoy without a control server: to check it, or to try it.

Nothing is authored here. Resources are decoded with Envoy's own schema and put where the bootstrap
takes them, so that what is checked is what is published.
"""

from collections.abc import Mapping
from typing import Any

from google.protobuf.message import Message

from headrace_xds.envoy_schema import EnvoySchema
from headrace_xds.translate import resources
from headrace_xds.translate.resources import Resource

_MANAGER = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"


def standalone(
    bootstrap: Mapping[str, Any],
    published: Mapping[str, Mapping[str, Resource]],
    endpoints: Mapping[str, Resource],
    schema: EnvoySchema,
) -> bytes:
    """Serialised Bootstrap (``--config-path FILE.pb``) that needs no discovery.

    A cluster whose name has no endpoints gets none.
    """
    config: Any = schema.from_json("envoy.config.bootstrap.v3.Bootstrap", bootstrap)
    config.dynamic_resources.Clear()
    config.static_resources.ClearField("clusters")
    for cluster in published[resources.CLUSTER].values():
        config.static_resources.clusters.append(_static_cluster(cluster, endpoints, schema))
    for listener in published[resources.LISTENER].values():
        config.static_resources.listeners.append(_static_listener(listener, published, schema))
    body: bytes = config.SerializeToString(deterministic=True)
    return body


def _static_cluster(
    cluster: Resource, endpoints: Mapping[str, Resource], schema: EnvoySchema
) -> Message:
    message: Any = schema.decode(resources.CLUSTER, cluster.body)
    service = message.eds_cluster_config.service_name or cluster.name
    message.ClearField("eds_cluster_config")
    message.type = message.STATIC
    if service in endpoints:
        message.load_assignment.ParseFromString(endpoints[service].body)
    message.load_assignment.cluster_name = cluster.name
    typed: Message = message
    return typed


def _static_listener(
    listener: Resource, published: Mapping[str, Mapping[str, Resource]], schema: EnvoySchema
) -> Message:
    message: Any = schema.decode(resources.LISTENER, listener.body)
    for chain in message.filter_chains:
        for network_filter in chain.filters:
            manager: Any = schema.message(_MANAGER)
            network_filter.typed_config.Unpack(manager)
            table = published[resources.ROUTES][manager.rds.route_config_name]
            manager.route_config.ParseFromString(table.body)
            for http_filter in manager.http_filters:
                _fill_in(http_filter, published[resources.EXTENSION], schema)
            network_filter.typed_config.Pack(manager)
    typed: Message = message
    return typed


def _fill_in(http_filter: Any, extensions: Mapping[str, Resource], schema: EnvoySchema) -> None:
    """Put the configuration that a filter would have discovered into it."""
    if http_filter.HasField("config_discovery"):
        found: Any = schema.decode(resources.EXTENSION, extensions[http_filter.name].body)
        http_filter.typed_config.CopyFrom(found.typed_config)
