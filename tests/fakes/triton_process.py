"""A real tritonserver in a folder of its own, for tests: started, watched and stopped by pid.

Sockets are Unix sockets in that folder. Models are written with ``write_model`` before or after
the start and loaded over gRPC (explicit mode), as the sidecar does it.
"""

import os
import signal
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

_START_S: Final = 30.0
_POLL_S: Final = 0.05
_UNIX_PATH_BYTES: Final = 107
_GRPC_PORT: Final = 8001
"""Only a suffix of the socket's path, never a port of the machine."""

IDENTITY: Final = '''
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    """Every input comes back as the output of the same place."""

    def initialize(self, args):
        import json
        config = json.loads(args["model_config"])
        self.pairs = list(zip((i["name"] for i in config["input"]),
                              (o["name"] for o in config["output"])))

    def execute(self, requests):
        responses = []
        for request in requests:
            outputs = []
            for source, target in self.pairs:
                tensor = pb_utils.get_input_tensor_by_name(request, source)
                outputs.append(pb_utils.Tensor(target, tensor.as_numpy()))
            responses.append(pb_utils.InferenceResponse(outputs))
        return responses
'''


class TritonProcess:
    """A running tritonserver."""

    def __init__(self, folder: Path, process: "subprocess.Popen[bytes]") -> None:
        self.folder = folder
        self.process = process
        self.repository = folder / "models"
        self.log = folder / "triton.log"

    @property
    def target(self) -> str:
        """gRPC target of the server: tritonserver adds the port to the socket's path."""
        return f"unix:{self.folder}/g.sock:{_GRPC_PORT}"

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self.process.poll() is None

    def load(self, *models: str) -> None:
        """Load models; an error of Triton is raised."""
        with grpc.insecure_channel(self.target) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            for model in models:
                request = service_pb2.RepositoryModelLoadRequest(model_name=model)
                stub.RepositoryModelLoad(request, timeout=_START_S)

    def kill(self) -> None:
        """End the server and its stubs at once, as a crash of the machine would."""
        # A stub that is asking its server something waits for ever when the server alone dies.
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for segment in Path("/dev/shm").glob(f"{_segment_prefix(self.folder)}*"):
            segment.unlink(missing_ok=True)


def _segment_prefix(folder: Path) -> str:
    return f"{folder.name}_"


def write_model(repository: Path, name: str, config: str, code: str = IDENTITY) -> None:
    """Put a Python model into the repository; ``config`` is config.pbtxt less name and backend."""
    version = repository / name / "1"
    version.mkdir(parents=True, exist_ok=True)
    (version / "model.py").write_text(code)
    (repository / name / "config.pbtxt").write_text(f'name: "{name}"\nbackend: "python"\n{config}')


def _launch(folder: Path) -> "subprocess.Popen[bytes]":
    site = Path(sysconfig.get_paths()["purelib"])
    server = site / "pytriton" / "tritonserver"
    backend = folder / "backends" / "python"
    backend.mkdir(parents=True)
    version = sysconfig.get_python_version()
    for source in (
        server / "backends/python/libtriton_python.so",
        server / "backends/python/triton_python_backend_utils.py",
        server / "python_backend_stubs" / version / "triton_python_backend_stub",
    ):
        (backend / source.name).symlink_to(source)
    (folder / "models").mkdir(exist_ok=True)
    scripts = sysconfig.get_paths()["scripts"]
    libraries = f"{site}/nvidia_pytriton.libs:{sysconfig.get_config_var('LIBDIR')}"
    with (folder / "triton.log").open("wb") as log:
        return subprocess.Popen(
            [
                str(server / "bin/tritonserver"),
                f"--model-repository={folder}/models",
                f"--backend-directory={folder}/backends",
                "--model-control-mode=explicit",
                "--strict-readiness=false",
                "--exit-on-error=false",
                "--disable-auto-complete-config",
                f"--grpc-address=unix:{folder}/g.sock",
                f"--grpc-port={_GRPC_PORT}",
                f"--http-address=unix:{folder}/h.sock",
                "--allow-metrics=false",
                f"--backend-config=python,shm-region-prefix-name={_segment_prefix(folder)}",
            ],
            env={
                **os.environ,
                "PATH": f"{scripts}:{os.environ.get('PATH', '')}",
                "LD_LIBRARY_PATH": libraries,
                "OMP_NUM_THREADS": "1",
                "OPENBLAS_NUM_THREADS": "1",
            },
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _wait_until_live(triton: TritonProcess) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        if not triton.alive:
            break
        with grpc.insecure_channel(triton.target) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            try:
                if stub.ServerLive(service_pb2.ServerLiveRequest(), timeout=1.0).live:
                    return
            except grpc.RpcError:
                pass
        time.sleep(_POLL_S)
    raise RuntimeError(
        f"tritonserver is not live:\n{triton.log.read_text(errors='replace')[-4000:]}"
    )


@contextmanager
def running_triton() -> Iterator[TritonProcess]:
    """A live tritonserver without models; gone, with its folder, at the end."""
    with tempfile.TemporaryDirectory(prefix="hr-t") as name:
        folder = Path(name)
        assert len(f"{folder}/g.sock:{_GRPC_PORT}") <= _UNIX_PATH_BYTES
        triton = TritonProcess(folder, _launch(folder))
        try:
            _wait_until_live(triton)
            yield triton
        finally:
            # An orderly stop takes seconds, and no test of the front door is about it.
            triton.kill()
