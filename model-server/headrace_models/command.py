"""How tritonserver is called: its arguments and its environment. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace import limits
from headrace_models.binaries import Binaries
from headrace_models.layout import GRPC_PORT, Layout

SHM_BYTES = 1024 * 1024
"""Shared memory one stub starts with; it grows as tensors need."""
LOAD_THREADS = 4
"""Models one tritonserver loads at once."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The Python that stubs run: they take the ``python3`` that comes first on PATH."""

    bin_dir: Path
    library_dir: Path
    packages_dir: Path
    """Folder that this package is imported from, for an installation that no stub would see."""


def arguments(binaries: Binaries, layout: Layout, *, metrics_port: int) -> list[str]:
    """Command line: explicit model control, gRPC on a Unix socket, no HTTP.

    HTTP stays off because one crafted HTTP request ends this tritonserver.
    """
    return [
        str(binaries.server),
        f"--model-repository={layout.repository_dir}",
        f"--backend-directory={layout.backends_dir}",
        f"--cache-directory={binaries.caches}",
        "--model-control-mode=explicit",
        f"--model-load-thread-count={LOAD_THREADS}",
        "--strict-readiness=false",
        "--exit-on-error=false",
        "--disable-auto-complete-config",
        "--allow-http=false",
        f"--grpc-address=unix:{layout.grpc_socket_stem}",
        f"--grpc-port={GRPC_PORT}",
        "--metrics-address=127.0.0.1",
        f"--metrics-port={metrics_port}",
        "--metrics-interval-ms=500",
        f"--exit-timeout-secs={int(limits.TRITON_EXIT_S)}",
        "--log-format=ISO8601",
        f"--backend-config=python,shm-region-prefix-name={layout.shm_prefix}",
        f"--backend-config=python,shm-default-byte-size={SHM_BYTES}",
    ]


def environment(base: Mapping[str, str], interpreter: Interpreter) -> dict[str, str]:
    """The parent's environment, with the interpreter where stubs look for it."""
    return {
        **base,
        "PATH": _before(interpreter.bin_dir, base.get("PATH")),
        "LD_LIBRARY_PATH": _before(interpreter.library_dir, base.get("LD_LIBRARY_PATH")),
        "PYTHONPATH": _before(interpreter.packages_dir, base.get("PYTHONPATH")),
        # One stub must not take every core: each model sets its own number of threads.
        "OMP_NUM_THREADS": "1",
    }


def _before(first: Path, rest: str | None) -> str:
    return f"{first}:{rest}" if rest else str(first)
