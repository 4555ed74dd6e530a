"""How things are called on the wire. Every program builds these names here and nowhere else."""

from typing import Final, Literal

Protocol = Literal["http", "grpc"]

ASSIGNMENT_TYPE_URL: Final = "type.googleapis.com/xds.type.v3.TypedStruct"
"""xDS type that assignments travel as, so that no private .proto is needed."""

ASSIGNMENT_KIND: Final = "type.headrace.dev/v1alpha1.Assignment"
"""``type_url`` inside the TypedStruct of an assignment."""


CLUSTER_FORMAT: Final = "m-%s-%s-%s"
"""``cluster`` as C, Lua and Python format text: of model, version and protocol."""


def cluster(model: str, version: int, protocol: Protocol) -> str:
    """Envoy cluster of one model version: ``m-<model>-<version>-<protocol>``."""
    return CLUSTER_FORMAT % (model, version, protocol)


def shadow_cluster(model: str, version: int, protocol: Protocol) -> str:
    """Cluster that mirrored traffic leaves by: same endpoints, a breaker of its own."""
    return f"s-{model}-{version}-{protocol}"


def node_cluster(protocol: Protocol) -> str:
    """Cluster of every GPU node, for requests that name no model (server metadata, liveness)."""
    return f"nodes-{protocol}"


def route_table(model: str) -> str:
    """Route table of a model, and of the scope that selects it."""
    return f"models/{model}"


NODES_TABLE: Final = "nodes"
"""Route table of requests that name no model."""


def assignment(model: str, version: int) -> str:
    """Resource name of the assignment of a model version to a node."""
    return f"{model}@{version}"


def parse_assignment(name: str) -> tuple[str, int]:
    """Model and version in an assignment's resource name."""
    model, _, version = name.rpartition("@")
    return model, int(version)


def triton_model(model: str, version: int) -> str:
    """Name of a model version in Triton: versions differ in config, so each is a model."""
    return f"{model}.{version}"


UTILIZATION_PREFIX: Final = "u_"
"""What every key of ``utilization_metric`` begins with."""


def utilization_metric(model: str, version: int) -> str:
    """Key in the ORCA report's ``named_metrics`` that carries a model version's utilisation."""
    return f"{UTILIZATION_PREFIX}{model}_{version}"


def ready_metric(model: str, version: int) -> str:
    """Key in ``named_metrics``: 1 while the model version answers, 0 after it was lost."""
    return f"ready_{model}_{version}"


def queue_metric(model: str, version: int) -> str:
    """Key in ``named_metrics``: requests waiting for the model version on this node."""
    return f"queue_{model}_{version}"


def running_metric(model: str, version: int) -> str:
    """Key in ``named_metrics``: requests of the model version in flight on this node."""
    return f"running_{model}_{version}"


def rps_metric(model: str, version: int) -> str:
    """Key in ``named_metrics``: requests per second of the model version on this node, unscaled."""
    return f"rps_{model}_{version}"


TRITON_AGE_METRIC: Final = "triton_age_s"
"""Key in ``named_metrics``: seconds since the node last read Triton's metrics page, node-wide."""


def health_service(model: str, version: int) -> str:
    """Service name in gRPC health checks of a model version."""
    return f"{model}@{version}"


GATEWAY_CERTIFICATE: Final = "gateway-certificate"
"""Name under which every gateway is given its own certificate and key."""
CLIENT_CA: Final = "client-ca"
"""Name under which a gateway is given the certificates that vouch for its callers."""


def gpu_node_id(node: str) -> str:
    """xDS node id of the GPU sidecar of a node."""
    return f"gpu/{node}"


def gateway_node_id(gateway: str) -> str:
    """xDS node id of a gateway's Envoy."""
    return f"gateway/{gateway}"


def is_gateway(node_id: str) -> bool:
    """Whether an xDS node id, or a publication group, is a gateway's."""
    return node_id.startswith(gateway_node_id(""))


def publication_group(node_id: str) -> str:
    """What is published to a node: replicas ``gateway/<name>/<replica>`` are served alike."""
    if not is_gateway(node_id):
        return node_id
    return gateway_node_id(node_id.removeprefix(gateway_node_id("")).partition("/")[0])
