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
    """Serialised Bootstrap (``--config-path FILE.pb``) that discovers nothing but secrets.

    A cluster whose name has no endpoints gets none; a filter that is not published is left out.
    """
    config: Any = schema.from_json("envoy.config.bootstrap.v3.Bootstrap", bootstrap)
    # Secrets are in no file: a listener that speaks TLS still waits for them from a control server.
    config.dynamic_resources.ClearField("cds_config")
    config.dynamic_resources.ClearField("lds_config")
    _fill_in_layers(config.layered_runtime, published.get(resources.RUNTIME, {}), schema)
    for cluster in published[resources.CLUSTER].values():
        config.static_resources.clusters.append(_static_cluster(cluster, endpoints, schema))
    for listener in published[resources.LISTENER].values():
        config.static_resources.listeners.append(_static_listener(listener, published, schema))
    body: bytes = config.SerializeToString(deterministic=True)
    return body


def _fill_in_layers(
    layered_runtime: Any, overrides: Mapping[str, Resource], schema: EnvoySchema
) -> None:
    """Put the runtime values that Envoy would have discovered into their layers."""
    for layer in layered_runtime.layers:
        if not layer.HasField("rtds_layer"):
            continue
        name = layer.rtds_layer.name
        layer.static_layer.Clear()
        if name in overrides:
            found: Any = schema.decode(resources.RUNTIME, overrides[name].body)
            layer.static_layer.CopyFrom(found.layer)


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
            _fill_in_tables(manager.scoped_routes, published, schema)
            _fill_in_filters(manager, published[resources.EXTENSION], schema)
            network_filter.typed_config.Pack(manager)
    typed: Message = message
    return typed


def _fill_in_tables(
    scoped_routes: Any, published: Mapping[str, Mapping[str, Resource]], schema: EnvoySchema
) -> None:
    """Put the scopes and route tables that a listener would have discovered into it."""
    scoped_routes.ClearField("rds_config_source")
    inline = scoped_routes.scoped_route_configurations_list.scoped_route_configurations
    for scope in published[resources.SCOPES].values():
        message: Any = schema.decode(resources.SCOPES, scope.body)
        table = published[resources.ROUTES][message.route_configuration_name]
        message.ClearField("route_configuration_name")
        message.route_configuration.ParseFromString(table.body)
        inline.append(message)


def _fill_in_filters(manager: Any, extensions: Mapping[str, Resource], schema: EnvoySchema) -> None:
    """Put the configuration that filters would have discovered into them."""
    for index, http_filter in reversed(list(enumerate(manager.http_filters))):
        if not http_filter.HasField("config_discovery"):
            continue
        if http_filter.name not in extensions:
            del manager.http_filters[index]
            continue
        found: Any = schema.decode(resources.EXTENSION, extensions[http_filter.name].body)
        http_filter.typed_config.CopyFrom(found.typed_config)
