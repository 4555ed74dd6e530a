"""HTTP headers and gRPC metadata the mesh reads or writes, with who may set them."""

from typing import Final

# Set by clients
MODEL_HINT: Final = "headrace-model"
"""Names the model where the path does not: needed for gRPC ``ModelStreamInfer``."""
VERSION_HINT: Final = "headrace-version"
"""Pins a version where the path does not."""
API_KEY: Final = "x-api-key"
"""A tenant's key; ``authorization: Bearer`` is equivalent."""

# Set by Envoy, stripped when a client sends them
INTERNAL_PREFIX: Final = "x-headrace-"
MODEL: Final = "x-headrace-model"
"""Model that was routed to; stamped by the cluster."""
VERSION: Final = "x-headrace-version"
"""Version that was routed to; stamped by the cluster, so that a retry on another arm is right."""
PIN: Final = "x-headrace-pin"
"""Version that the request itself asked for."""
CLUSTER: Final = "x-headrace-cluster"
"""Envoy cluster of a pinned version; never leaves the gateway."""
SCOPE: Final = "x-headrace-scope"
"""Whose route table the request is matched in: a model's name, or ``NO_SCOPE`` before one is known
and where none is named. A gateway sets it on every request; it never leaves the gateway."""
NO_SCOPE: Final = "-"
TENANT: Final = "x-headrace-tenant"
TIER: Final = "x-headrace-tier"
SHADOW: Final = "x-headrace-shadow"
"""Present on mirrored requests."""
DEADLINE: Final = "x-headrace-deadline-ms"
"""Time that a gRPC caller has left. It stands for ``grpc-timeout``, which stays at the gateway: a
gRPC library ends a call that is out of time by itself, without the marks of a refusal, and so a
caller could have nodes ejected."""
DESTINATION: Final = "x-gateway-destination-endpoint"
"""Endpoint chosen by a picker."""

# Set by sidecars on responses
REFUSED: Final = "x-headrace-refused"
"""Refusal code; tells outlier detection that the node is full, not sick.

On gRPC this and RETRY must be *initial* metadata: of an answer that is trailers only, Envoy counts
the status as a failure of the node whatever its headers say. Failures proper stay trailers only.
"""
RETRY: Final = "x-headrace-retry"
"""``safe`` when the request did not run and may be tried on another node."""
RETRY_SAFE: Final = "safe"
SERVED_VERSION: Final = "headrace-served-version"
"""Version that answered."""
SERVED_NODE: Final = "headrace-served-node"
"""Node that answered."""

STRIPPED: Final = (MODEL, VERSION, PIN, CLUSTER, TENANT, TIER, SHADOW, DEADLINE, DESTINATION)
"""Request headers that a gateway removes before anything reads them."""
