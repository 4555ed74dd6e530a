"""A real model server in a folder of its own, for tests: its agent, its Triton, both over sockets.

Weights come from the cache that every test of one run shares, so they are converted once.
"""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import msgspec
import numpy as np
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from headrace import names
from headrace.assignment import Assignment, Batching, Tensor

ROOT: Final = Path(__file__).parents[2]
_START_S: Final = 60.0
_STOP_S: Final = 30.0
_POLL_S: Final = 0.02
_LOAD_S: Final = 60.0

_TENSORS: Final = {
    "vision": (
        (Tensor(name="image", datatype="BYTES", shape=(1,)),),
        (
            Tensor(name="labels", datatype="BYTES", shape=(5,)),
            Tensor(name="classes", datatype="INT64", shape=(5,)),
            Tensor(name="probabilities", datatype="FP32", shape=(5,)),
        ),
    ),
    "ranking": (
        (
            Tensor(name="query", datatype="BYTES", shape=(1,)),
            Tensor(name="documents", datatype="BYTES", shape=(-1,)),
        ),
        (Tensor(name="scores", datatype="FP32", shape=(-1,)),),
    ),
}
ARTIFACTS: Final = {
    ("vision", 1): "efficientnet-lite0",
    ("vision", 2): "efficientnet-lite1",
    ("ranking", 1): "minilm-l6",
    ("ranking", 2): "minilm-l6-int8",
}


def assigned(model: str, version: int, **changes: Any) -> Assignment:
    """The assignment of a real model version, as the local mesh makes it."""
    batching = Batching(
        max_batch_size=8, max_queue_delay_s=0.002, max_queue_size=64, queue_timeout_s=2.0
    )
    inputs, outputs = _TENSORS[model]
    plain = Assignment(
        model=model,
        version=version,
        executor=model,
        artifact=ARTIFACTS[model, version],
        inputs=inputs,
        outputs=outputs,
        batching=batching,
    )
    return msgspec.structs.replace(plain, **changes)


def echo(
    datatype: str = "UINT8", parameters: Mapping[str, str] = {}, **batching: Any
) -> Assignment:
    """An identity model."""
    data = (Tensor(name="data", datatype=datatype, shape=(-1,)),)
    defaults = {"max_batch_size": 8, "max_queue_delay_s": 0.0, "max_queue_size": 64}
    return Assignment(
        model="echo",
        version=1,
        executor="identity",
        artifact="",
        inputs=data,
        outputs=data,
        batching=Batching(**{**defaults, "queue_timeout_s": 5.0, **batching}),
        parameters=dict(parameters or {}),
    )


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("agent", timeout=_LOAD_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_LOAD_S)
        self.sock.connect(str(self._path))


@dataclass(frozen=True)
class Reply:
    """What the agent or Triton answered."""

    status: int
    body: Any


class ModelServer:
    """A running model server."""

    def __init__(self, folder: Path, process: "subprocess.Popen[bytes]") -> None:
        self.folder = folder
        self.process = process

    @property
    def log(self) -> str:
        """Everything it wrote."""
        return (self.folder / "log").read_text(errors="replace")

    def call(self, method: str, path: str, body: bytes | None = None) -> Reply:
        """One request to the agent."""
        with contextlib.closing(_UnixConnection(self.folder / "agent.sock")) as connection:
            connection.request(method, path, body)
            response = connection.getresponse()
            raw = response.read()
            return Reply(response.status, json.loads(raw) if raw else None)

    def place(self, assignment: Assignment) -> Reply:
        """Tell the agent to hold a version."""
        path = f"/v1/versions/{assignment.model}/{assignment.version}"
        return self.call("PUT", path, msgspec.json.encode(assignment))

    def triton(self) -> dict[str, Any]:
        """Status of tritonserver."""
        status: dict[str, Any] = self.call("GET", "/v1/status").body["triton"]
        return status

    def wait_triton(self, *, incarnation: int) -> dict[str, Any]:
        """Status once this incarnation answers."""
        deadline = time.monotonic() + _START_S
        while True:
            status = self.triton()
            if status["alive"] and status["incarnation"] >= incarnation:
                return status
            assert time.monotonic() < deadline, self.log
            time.sleep(_POLL_S)

    def load(self, assignment: Assignment) -> dict[str, Any]:
        """Place and load a version; its golden answer."""
        reply = self.place(assignment)
        assert reply.status == 200, reply
        with self.client() as stub:
            request = pb.RepositoryModelLoadRequest(model_name=reply.body["triton_model"])
            stub.RepositoryModelLoad(request, timeout=_LOAD_S)
        golden: dict[str, Any] = reply.body["golden"]
        return golden

    @contextlib.contextmanager
    def client(self) -> Iterator[Any]:
        """Stub of Triton's gRPC API."""
        with grpc.insecure_channel(f"unix:{self.folder}/triton.sock") as channel:
            yield service_pb2_grpc.GRPCInferenceServiceStub(channel)

    def metrics(self) -> str:
        """Triton's metrics page."""
        address = self.triton()["metrics_address"]
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as page:
            text: str = page.read().decode()
            return text

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(_STOP_S)


def bytes_tensor(values: list[bytes]) -> bytes:
    """BYTES elements as they travel."""
    return b"".join(len(value).to_bytes(4, "little") + value for value in values)


def infer_request(
    assignment: Assignment, inputs: Mapping[str, list[bytes] | bytes], **parameters: int
) -> Any:
    """A gRPC request for one row: lists for BYTES, bytes for UINT8."""
    model = names.triton_model(assignment.model, assignment.version)
    request = pb.ModelInferRequest(model_name=model)
    for name, value in inputs.items():
        tensor = request.inputs.add()
        tensor.name = name
        tensor.datatype = "BYTES" if isinstance(value, list) else "UINT8"
        tensor.shape.extend([1, len(value)])
        request.raw_input_contents.append(bytes_tensor(value) if isinstance(value, list) else value)
    for name, number in parameters.items():
        request.parameters[name].int64_param = number
    return request


def golden_request(assignment: Assignment, golden: Mapping[str, Any]) -> Any:
    """The gRPC request of a golden answer's JSON request."""
    elements = {
        tensor["name"]: [element.encode() for element in tensor["data"]]
        for tensor in golden["request"]["inputs"]
    }
    return infer_request(assignment, elements)


def outputs(response: Any) -> dict[str, Any]:
    """Output tensors by name, without the batch dimension: numpy arrays or lists of bytes."""
    made: dict[str, Any] = {}
    for tensor, raw in zip(response.outputs, response.raw_output_contents, strict=True):
        made[tensor.name] = _decode(tensor.datatype, raw)
    return made


def _decode(datatype: str, raw: bytes) -> Any:
    if datatype != "BYTES":
        kinds = {"FP32": np.float32, "INT64": np.int64, "UINT8": np.uint8}
        return np.frombuffer(raw, kinds[datatype])
    values, at = [], 0
    while at < len(raw):
        length = int.from_bytes(raw[at : at + 4], "little")
        values.append(raw[at + 4 : at + 4 + length])
        at += 4 + length
    return values


COMMAND: Final = (sys.executable, "-m", "headrace_models")


def environment() -> dict[str, str]:
    """Environment that runs the model server out of this checkout."""
    return {**os.environ, "PYTHONPATH": f"{ROOT}/mesh-config:{ROOT}/model-server"}


def launch(folder: Path) -> ModelServer:
    """Start a model server on this folder and return at once."""
    (folder / "ports.json").unlink(missing_ok=True)
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [
                *COMMAND,
                *("--state-dir", str(folder)),
                *("--agent-socket", str(folder / "agent.sock")),
                *("--ports-file", str(folder / "ports.json")),
            ],
            env=environment(),
            stdout=log,
            stderr=log,
        )
    return ModelServer(folder, process)


def wait_up(server: ModelServer) -> None:
    """Return once its ports file says that everything listens."""
    deadline = time.monotonic() + _START_S
    while not (server.folder / "ports.json").exists():
        assert server.process.poll() is None, server.log
        assert time.monotonic() < deadline, server.log
        time.sleep(_POLL_S)


@contextlib.contextmanager
def running_model_server() -> Iterator[ModelServer]:
    """A model server whose Triton answers; gone, with its folder, at the end."""
    with tempfile.TemporaryDirectory(prefix="hr-m") as name:
        server = launch(Path(name))
        try:
            wait_up(server)
            yield server
        finally:
            if server.process.poll() is None:
                server.stop()
