"""Every metric of the mesh in one table; programs, dashboards and alerts take them from here.

A row names one quantity in one base unit. Labels are few and bounded: models and versions by
``limits.MODEL_LABELS``, everything else by the tables it comes from.
"""

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["counter", "gauge", "histogram"]
Unit = Literal["", "seconds", "bytes", "ratio", "info", "timestamp_seconds"]

OTHER: Final = "other"
"""Label value of what came after the limit on label sets."""

DURATION_BUCKETS_S: Final = (
    *(0.001, 0.0025, 0.005),
    *(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28),
    *(2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
)
"""OpenTelemetry's buckets of server durations, with three more for models that answer faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One quantity; ``otel`` is its OpenTelemetry name where one exists."""

    name: str
    kind: Kind
    labels: tuple[str, ...] = ()
    unit: Unit = ""
    help: str
    otel: str = ""
    buckets: tuple[float, ...] = ()


MODEL: Final = ("model", "version")

# Every program
BUILD_INFO: Final = Metric(
    name="headrace_build_info",
    kind="gauge",
    labels=("program", "version", "python"),
    unit="info",
    help="1; which build runs",
)

# Requests at a sidecar
REQUEST_DURATION: Final = Metric(
    name="headrace_request_duration_seconds",
    kind="histogram",
    labels=(*MODEL, "outcome"),
    unit="seconds",
    help="Time from when a request was let in to the end of its answer",
    otel="gen_ai.server.request.duration",
    buckets=DURATION_BUCKETS_S,
)
REQUESTS: Final = Metric(
    name="headrace_requests_total",
    kind="counter",
    labels=(*MODEL, "outcome"),
    help="Requests that were let in and ended, by how",
)
REFUSALS: Final = Metric(
    name="headrace_refusals_total",
    kind="counter",
    labels=("code",),
    help="Requests that were refused, by the code of the refusal",
)

# Models that pad (on Triton's own metrics page)
USEFUL_TOKENS: Final = Metric(
    name="headrace_useful_tokens_total",
    kind="counter",
    labels=MODEL,
    help="Tokens of texts that a model computed",
)
COMPUTED_TOKENS: Final = Metric(
    name="headrace_computed_tokens_total",
    kind="counter",
    labels=MODEL,
    help="Tokens that a model computed, padding included",
)
USEFUL_TOKEN_RATIO: Final = Metric(
    name="headrace_useful_token_ratio",
    kind="gauge",
    labels=MODEL,
    unit="ratio",
    help="Part of the computed tokens that is text, since the model was loaded",
)

# Load of a GPU node
QUEUE_DEPTH: Final = Metric(
    name="headrace_queue_depth",
    kind="gauge",
    labels=MODEL,
    help="Requests that wait for the model version on this node",
)
RUNNING: Final = Metric(
    name="headrace_running",
    kind="gauge",
    labels=MODEL,
    help="Requests of the model version in flight on this node",
)
UTILIZATION: Final = Metric(
    name="headrace_utilization_ratio",
    kind="gauge",
    labels=MODEL,
    unit="ratio",
    help="Load of the model version; 1 means: send no more",
)
CONCURRENCY_AT_SLO: Final = Metric(
    name="headrace_concurrency_at_slo",
    kind="gauge",
    labels=MODEL,
    help="Requests that may be in flight while the model version keeps its latency objective",
)
SERVICE_TIME: Final = Metric(
    name="headrace_service_time_seconds",
    kind="gauge",
    labels=MODEL,
    unit="seconds",
    help="Moving average of the time that one batch of the model version takes",
)
QUEUE_WAIT: Final = Metric(
    name="headrace_queue_wait_seconds",
    kind="gauge",
    labels=MODEL,
    unit="seconds",
    help="Moving average of the time that a request waits for a batch",
)
READY: Final = Metric(
    name="headrace_ready",
    kind="gauge",
    labels=MODEL,
    help="1 while the model version answers on this node",
)
SIGNAL_AGE: Final = Metric(
    name="headrace_signal_age_seconds",
    kind="gauge",
    labels=("source",),
    unit="seconds",
    help="Age of the newest observation of a source of load signals",
)
LOAD_REPORT_STREAMS: Final = Metric(
    name="headrace_load_report_streams",
    kind="gauge",
    help="Open streams of load reports",
)
GPU_MEMORY_USED: Final = Metric(
    name="headrace_gpu_memory_used_bytes",
    kind="gauge",
    labels=("gpu",),
    unit="bytes",
    help="Memory in use on a GPU",
    otel="hw.gpu.memory.usage",
)
GPU_MEMORY: Final = Metric(
    name="headrace_gpu_memory_bytes",
    kind="gauge",
    labels=("gpu",),
    unit="bytes",
    help="Memory of a GPU",
    otel="hw.gpu.memory.limit",
)
GPU_BUSY: Final = Metric(
    name="headrace_gpu_busy_ratio",
    kind="gauge",
    labels=("gpu",),
    unit="ratio",
    help="Part of the time in which a kernel ran on a GPU",
    otel="hw.gpu.utilization",
)

# Life of model versions on a GPU node
ASSIGNMENTS: Final = Metric(
    name="headrace_assignments",
    kind="gauge",
    labels=("state",),
    help="Model versions of this node by their state of life",
)
TRANSITIONS: Final = Metric(
    name="headrace_lifecycle_transitions_total",
    kind="counter",
    labels=(*MODEL, "state"),
    help="Times a model version entered a state of life",
)
LOAD_DURATION: Final = Metric(
    name="headrace_load_duration_seconds",
    kind="histogram",
    labels=MODEL,
    unit="seconds",
    help="Time from an assignment to the first golden answer",
    buckets=DURATION_BUCKETS_S,
)
REPAIRS: Final = Metric(
    name="headrace_repairs_total",
    kind="counter",
    labels=(*MODEL, "cause"),
    help="Times a ready model version was lost and loaded again",
)
TRITON_RESTARTS: Final = Metric(
    name="headrace_triton_restarts",
    kind="gauge",
    help="Restarts of Triton that this node asked for",
)
TRITON_UP: Final = Metric(
    name="headrace_triton_up",
    kind="gauge",
    help="1 while Triton answers",
)
TRITON_INCARNATION: Final = Metric(
    name="headrace_triton_incarnation",
    kind="gauge",
    help="How many times Triton was started",
)
CONTROL_CONNECTED: Final = Metric(
    name="headrace_control_connected",
    kind="gauge",
    help="1 while the stream to the control server is open",
)
DRAINING: Final = Metric(
    name="headrace_draining",
    kind="gauge",
    help="1 from the first SIGTERM on",
)

# Control server
XDS_STREAMS: Final = Metric(
    name="headrace_xds_streams",
    kind="gauge",
    labels=("role",),
    help="Open xDS streams by the role of the proxy",
)
XDS_PUSHES: Final = Metric(
    name="headrace_xds_pushes_total",
    kind="counter",
    labels=("type",),
    help="Discovery responses that were sent, by resource type",
)
XDS_ACKS: Final = Metric(
    name="headrace_xds_acks_total",
    kind="counter",
    labels=("type",),
    help="Discovery responses that a proxy accepted",
)
XDS_NACKS: Final = Metric(
    name="headrace_xds_nacks_total",
    kind="counter",
    labels=("type",),
    help="Discovery responses that a proxy refused",
)
XDS_QUARANTINED: Final = Metric(
    name="headrace_xds_quarantined",
    kind="gauge",
    help="Versions that a proxy refused and that are held back from its build",
)
XDS_CANARY_WAITING: Final = Metric(
    name="headrace_xds_canary_waiting",
    kind="gauge",
    help="1 while gateways wait for the canary proxy to take a configuration",
)
XDS_WEIGHT_PUSHES: Final = Metric(
    name="headrace_xds_weight_pushes_total",
    kind="counter",
    help="Times that endpoint weights changed",
)
CONFIG_GENERATION: Final = Metric(
    name="headrace_config_generation",
    kind="gauge",
    help="Number of the configuration in effect",
)
CONFIG_PROBLEMS: Final = Metric(
    name="headrace_config_problems",
    kind="gauge",
    labels=("severity",),
    help="Problems of the configuration on disk",
)
CONFIG_LAST_SUCCESS: Final = Metric(
    name="headrace_config_last_success_timestamp_seconds",
    kind="gauge",
    unit="timestamp_seconds",
    help="When a configuration last came into effect",
)
CONFIG_REJECTED: Final = Metric(
    name="headrace_config_rejected_total",
    kind="counter",
    help="Configurations that were refused; what was in effect stayed so",
)
HOLDINGS: Final = Metric(
    name="headrace_holdings",
    kind="gauge",
    labels=("state",),
    help="Model versions that GPU nodes were told to hold, by how far the nodes are",
)
ENDPOINTS: Final = Metric(
    name="headrace_endpoints",
    kind="gauge",
    labels=("health",),
    help="Endpoints of model versions that gateways are told of, by health",
)
ENDPOINTS_WITHHELD: Final = Metric(
    name="headrace_endpoints_withheld",
    kind="gauge",
    help="Clusters whose endpoints stay unanswered until recorded nodes return",
)
LEDGER_FAILURES: Final = Metric(
    name="headrace_ledger_failures_total",
    kind="counter",
    help="Times the ledger could not be written",
)
LOAD_REPORT_AGE: Final = Metric(
    name="headrace_load_report_age_seconds",
    kind="gauge",
    labels=("node",),
    unit="seconds",
    help="Age of the newest load report of a GPU node at the control server",
)
GPU_NODES: Final = Metric(
    name="headrace_gpu_nodes",
    kind="gauge",
    labels=("state",),
    help="GPU nodes the control server knows, by state",
)

TABLE: Final[tuple[Metric, ...]] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)
"""Every row, in the order of this file."""
