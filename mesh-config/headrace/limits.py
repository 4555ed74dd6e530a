"""Every bound of the mesh in one table. A row's test is named after it."""

from typing import Final

# Configuration
CONFIG_FILE_BYTES: Final = 4 * 2**20
"""Largest YAML file the loader reads."""
CONFIG_DEPTH: Final = 64
"""Deepest nesting of a YAML document."""
CONFIG_ALIAS_NODES: Final = 1_000
"""Nodes that aliases of one file may expand to."""
CONFIG_PROBLEMS: Final = 200
"""Problems reported for one load; the rest are counted."""
CONFIG_FILES: Final = 1_000
"""Files read from one configuration folder."""
CONFIG_BYTES: Final = 64 * 2**20
"""Characters of all files of one configuration together."""
CONFIG_DOCUMENTS: Final = 20_000
"""Documents of a configuration that are kept as read; an edit reads what it changed."""
MEMO_SLOTS: Final = 200_000
"""Derived parts of a configuration that are kept; with more, all are derived again."""
REVISIONS: Final = 500
"""Configurations that are kept to go back to; the oldest is forgotten."""
AUTHOR_LENGTH: Final = 64
"""Characters of who made a revision; more are cut off."""
NOTE_LENGTH: Final = 500
"""Characters of what the author says about a revision; more are cut off."""
CONFIG_DURATION_S: Final = 86_400.0
"""Longest duration a configuration may name."""
CONFIG_DURATION_MIN_S: Final = 0.001
"""Shortest duration where a configuration may not say 0."""
CONFIG_SIZE_BYTES: Final = 2**50
"""Largest size a configuration may name."""

SECRETS: Final = 256
"""Secrets a control server reads; the rest are not there."""
SECRET_FILE_BYTES: Final = 256 * 2**10
"""Largest file of a secret."""

# Requests
BODY_BYTES: Final = 10 * 2**20 + 64 * 2**10
"""Largest request body: 10 MB of payload and 64 KiB of envelope."""
HEADERS_BYTES: Final = 64 * 2**10
"""Headers of one request at a sidecar: a gateway's 60 KiB and what it adds."""
JSON_DEPTH: Final = 64
"""Deepest nesting of a JSON body."""
TENSORS: Final = 64
"""Inputs, and outputs, that one inference request may name."""
TENSOR_RANK: Final = 16
"""Dimensions of one tensor."""
BYTES_ELEMENTS: Final = 262_144
"""Elements of one BYTES tensor in a request."""
REQUEST_PARAMETERS: Final = 64
"""Parameters of one inference request."""
MODEL_NAME_LENGTH: Final = 63
"""Characters of a model name in a request."""
REQUEST_ID_LENGTH: Final = 256
"""Characters of a request id."""
RESPONSE_BYTES: Final = 64 * 2**20
"""Largest response that a sidecar takes from Triton."""
IN_FLIGHT_PER_NODE: Final = 512
"""Requests inside one GPU sidecar; the next is refused as overloaded."""
INLINE_BYTES: Final = 64 * 2**10
"""JSON that is converted between other requests; more of it goes to a process of its own."""
INLINE_STRINGS: Final = 4_096
"""Elements of BYTES in a large message that are checked between other requests."""
CONVERTERS: Final = 2
"""Processes that one sidecar has for large conversions."""
CONVERSIONS_WAITING: Final = 32
"""Large conversions that wait for a process; the next is refused as overloaded."""
CONVERTER_BYTES: Final = 2**30
"""Memory of one such process; what takes more is refused as too large."""
CONVERSION_S: Final = 15.0
"""Time of one large conversion; what takes longer is refused."""
BODIES_BYTES: Final = 512 * 2**20
"""Request bodies that one sidecar holds at once; the next is refused as overloaded."""
REQUEST_DEADLINE_S: Final = 300.0
"""Longest time a sidecar lets one request run."""
STREAM_DEADLINE_S: Final = 3_600.0
"""Longest time a sidecar keeps one inference stream open."""
STREAM_REQUESTS: Final = 256
"""Requests of one inference stream that may be unanswered; the next waits to be read."""
STREAM_BUFFER_BYTES: Final = 32 * 2**20
"""Answers kept for a client that reads its stream slowly; with more, the stream is ended."""

# xDS
ASSIGNMENTS_IN_FLIGHT: Final = 4
"""Assignments one sidecar may be working on at once."""
ASSIGNMENTS_PER_NODE: Final = 1_024
"""Assignments one sidecar holds or works on; it refuses the next."""
ASSIGNMENT_ATTEMPTS: Final = 8
"""Times the control server offers an assignment that was NACKed before it waits for an edit."""
ASSIGNMENT_BACKOFF_S: Final = 1.0
"""Wait before the first repeat of an assignment; it doubles with every attempt."""
ASSIGNMENT_BACKOFF_MAX_S: Final = 60.0
"""Longest wait before an assignment is offered again."""
GPU_NODES: Final = 10_000
"""GPU nodes one control server knows; the next is not placed."""
RETIRE_S: Final = 30.0
"""Longest time nodes go on serving a version that the configuration dropped; less once every
gateway has let go of it."""
STREAMS: Final = 4_096
"""ADS streams one control server accepts."""
SUBSCRIPTIONS_PER_STREAM: Final = 100_000
"""Resource names one stream may subscribe to in one type."""
TYPES_PER_STREAM: Final = 32
"""Resource types one stream may ask for."""
NACKS_PER_STREAM: Final = 10_000
"""Refused versions one stream remembers for each type, so that none is sent twice."""
REPORT_RETRY_S: Final = 10.0
"""Longest wait before the load reports of a node that does not answer are asked for again."""
NODES_PER_POOL: Final = 32
"""Nodes of a pool among which requests that name no model are spread."""
CLAIM_S: Final = 1.0
"""Within which a proxy that comes back asks for clusters; if not, its endpoints are sent again."""
QUARANTINED: Final = 1_000
"""Refused versions that are held back; with more, the oldest is forgotten."""
BUILDS: Final = 8
"""Builds of one gateway's proxies that are told apart; the others are one more."""
CANARY_S: Final = 10.0
"""After which a canary proxy that has not taken a configuration is complained of."""
RESPONSE_RESOURCE_BYTES: Final = 2 * 2**20
"""Resources put into one discovery response before it is split."""
ADS_MESSAGE_BYTES: Final = 32 * 2**20
"""Largest discovery message either side accepts."""
WRITE_DEADLINE_S: Final = 30.0
"""A stream that takes no bytes for so long is closed."""
GATE_S: Final = 15.0
"""Listeners and routes wait so long for a proxy to acknowledge the clusters they need."""
ENCODED_RESPONSES_BYTES: Final = 64 * 2**20
"""Encoded responses kept to be sent to the next stream that needs the same."""
CLOSE_SPREAD_S: Final = 2.0
"""On shutdown, streams are ended one by one over at most so long."""
GATE_WORKERS: Final = 2
"""Envoys that check configurations at once."""
GATE_CHECK_S: Final = 20.0
"""Time one check may take; then there is no verdict, and nothing is published."""
GATE_RETRY_S: Final = 2.0
"""A configuration without a verdict is checked again after so long."""
GATE_CHUNK: Final = 2_500
"""Changed resources that one check takes; more are checked in several."""
GATE_RUNS: Final = 64
"""Checks made to find which of many changed resources are to blame."""
GATE_VERDICTS: Final = 100_000
"""Resources that are remembered to have passed."""
GATE_TEXT_LENGTH: Final = 1_000
"""Characters of Envoy's reason that are passed on."""
RECONNECT_MIN_S: Final = 0.2
"""First wait of a sidecar whose control stream broke."""
RECONNECT_MAX_S: Final = 5.0
"""Longest wait between two attempts to open a control stream."""
RECONNECT_STEADY_S: Final = 10.0
"""A control stream that lived so long starts the waits from the beginning."""
RETURN_GRACE_S: Final = 30.0
"""After a start, how long a model's endpoints wait for recorded nodes to return."""
FORGET_NODE_S: Final = 600.0
"""A node whose stream stayed lost for so long is forgotten, half of a pool at most."""

# Load
SIGNAL_PERIOD_S: Final = 0.2
"""Longest time between two load reports of a node."""
SIGNAL_STALE_S: Final = 3.0
"""A load report older than this no longer steers traffic."""
UTILIZATION_MIN: Final = 0.01
UTILIZATION_MAX: Final = 2.0
"""Bounds of reported utilisation; Envoy ignores a report of 0."""
WEIGHT_LEVELS: Final = 16
"""Steps that EDS weights are quantised to."""
WEIGHT_PUSH_PERIOD_S: Final = 0.2
"""Shortest time between two pushes of weights: at most 5 a second."""

# Envoy
SPLIT_TOTAL: Final = 10_000
"""Sum of the weights of a split."""
HEAP_BYTES: Final = 2 * 2**30
"""Envoy's heap, above which it stops accepting requests."""
DOWNSTREAM_CONNECTIONS: Final = 50_000
"""Connections one gateway accepts."""
FRAGMENTS: Final = 100_000
"""Encoded parts of resources that a control server keeps."""
UPLOAD_S: Final = 60.0
"""Time a caller has to send a request, on top of REQUEST_DEADLINE_S for its answer."""
STREAM_DURATION_S: Final = 900.0
"""Longest life of a ModelStreamInfer call through a gateway."""
GRPC_FIELDS: Final = 1_024
"""Fields of a gRPC request that a gateway walks to find the model's name."""
API_KEY_LENGTH: Final = 256
"""Characters of an API key."""

# Model server
SOCKET_PATH_BYTES: Final = 107
"""Bytes of a Unix socket's path: the kernel's 108 less the closing zero."""
TRITON_START_S: Final = 30.0
"""Time a tritonserver has from its start to its first answer."""
TRITON_EXIT_S: Final = 10.0
"""Time tritonserver has to let requests finish and unload once it is told to stop."""
TRITON_KILL_S: Final = 15.0
"""Time from asking a tritonserver to stop until it is killed."""
TRITON_REPAIR_S: Final = 2.0
"""Time requests have to finish when a sick tritonserver is to be replaced; then it is killed."""
TRITON_SETTLED_S: Final = 60.0
"""A tritonserver that lived so long starts its restarts from the shortest delay again."""
TRITON_RESTART_DELAYS_S: Final = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Wait before a restart, by how many short lives came before; the last one repeats."""
LOG_LINE_BYTES: Final = 16 * 2**10
"""Longest log line of a tritonserver that is passed on; the rest of it is cut."""
PLACED_VERSIONS: Final = 1_024
"""Model versions that one model server has folders for; it refuses the next."""
ASSIGNMENT_BYTES: Final = 256 * 2**10
"""Largest assignment in a request to a model server."""
WEIGHTS_HEADER_BYTES: Final = 100 * 2**20
"""Largest header of a safetensors file."""
IMAGE_PIXELS: Final = 40_000_000
"""Pixels of an image, by its header; a larger one is refused before it is decoded."""
DOCUMENTS: Final = 1_000
"""Documents one ranking request may hold."""
CONVERT_S: Final = 600.0
"""Time one conversion of weights may take, and that another may wait for it."""

# Labels
MODEL_LABELS: Final = 2_000
"""Model versions that one program's metrics tell apart; the rest are ``other``."""

# Local mesh
LOCAL_NODES: Final = 64
"""GPU nodes that a mesh on one machine is given."""
LOCAL_LOG_BYTES: Final = 8 * 2**20
"""Size at which a program's log is begun anew; one older part is kept."""
LOCAL_RESTART_DELAYS_S: Final = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Wait before a program that ended is started again, by how many short lives came before."""
LOCAL_SETTLED_S: Final = 20.0
"""A program that lived so long starts its restarts from the shortest delay again."""
LOCAL_STOP_S: Final = 25.0
"""Time the programs of one stage have to drain and exit before they are killed."""
LOCAL_READY_S: Final = 180.0
"""Time a local mesh has from its start until every node and gateway answers."""
LOCAL_CRASHES: Final = 4
"""Short lives of one program after which starting the mesh is given up and its log shown."""

# GPU sidecar
LOAD_TRIES: Final = 4
"""Times a sidecar tries to make a version ready before it refuses the assignment."""
LOAD_DELAY_S: Final = 0.25
"""Wait before the second try; it doubles with every try."""
LOAD_DELAY_MAX_S: Final = 10.0
"""Longest wait between two tries."""
REPAIRS_IN_FLIGHT: Final = 4
"""Versions that one sidecar loads anew at once, beside the assignments it works on."""
REPAIR_TRIES: Final = 2
"""Failed repairs of a version after which Triton is restarted."""
TRITON_RESTART_PERIOD_S: Final = 60.0
"""Shortest time between two restarts of Triton that a sidecar asks for."""
REMOVAL_S: Final = 30.0
"""Time that requests inside have to finish before their version is unloaded."""
GOLDEN_S: Final = 30.0
"""Time a version has for its first golden answer."""
PROBE_S: Final = 1.0
"""Time a ready version has for a golden answer; more where one batch takes longer."""
PROBE_PERIOD_S: Final = 5.0
"""A version that completed nothing for so long is asked for a golden answer."""
STALL_S: Final = 2.0
"""A version that runs requests and completes none for so long is asked for a golden answer."""
PROBES_IN_FLIGHT: Final = 4
"""Golden questions to ready versions at once."""
ABANDON_S: Final = 1.0
"""Longest time over which the requests inside a lost version are given up."""
ADOPT_S: Final = 10.0
"""After a start, how long recorded versions have to answer to be claimed as ready."""
DRAIN_GRACE_S: Final = 3.0
"""After SIGTERM, a node goes on serving so long, for gateways to see that it leaves."""
DRAIN_S: Final = 60.0
"""Longest time from SIGTERM to the exit of a sidecar."""
LOAD_REPORT_STREAMS: Final = 1_024
"""Streams of load reports one node serves: one for each cluster and gateway, and the control
server's."""
LOAD_REPORT_PERIOD_MIN_S: Final = 0.1
"""Shortest interval of load reports that a subscriber may ask for."""
TRITON_METRICS_BYTES: Final = 16 * 2**20
"""Largest metrics page of Triton that is read."""
NVML_S: Final = 2.0
"""Time one reading of the GPUs may take before they count as unknown."""
GPUS: Final = 64
"""GPUs of one node that are told apart."""
