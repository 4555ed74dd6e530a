"""Where tritonserver and its Python backend are. Packages are found by path, never imported.

Importing pytriton would start its own supervisor, so only its folder is used. Any tritonserver
laid out like NVIDIA's container (``bin/``, ``backends/``, ``caches/``) may stand in its place.
"""

import importlib.metadata
import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from headrace_models.failure import Failure

PACKAGE = "nvidia-pytriton"
ENVIRONMENT = "HEADRACE_TRITONSERVER"
"""Environment variable that names another tritonserver binary."""

_LIBRARY = "libtriton_python.so"
_API = "triton_python_backend_utils.py"
_STUB = "triton_python_backend_stub"


@dataclass(frozen=True, slots=True)
class Binaries:
    """The files that one tritonserver consists of."""

    server: Path
    backend_library: Path
    backend_api: Path
    stub: Path
    caches: Path


def locate(server: Path | None = None) -> Binaries:
    """Files of the given tritonserver, else of the one in the nvidia-pytriton wheel.

    Raises Failure naming the first file that is not there.
    """
    root = server.resolve().parent.parent if server is not None else _wheel_root()
    backend = root / "backends" / "python"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = Binaries(
        server=server.resolve() if server is not None else root / "bin" / "tritonserver",
        backend_library=backend / _LIBRARY,
        backend_api=backend / _API,
        stub=_first(backend / _STUB, root / "python_backend_stubs" / version / _STUB),
        caches=root / "caches",
    )
    for path in (found.server, found.backend_library, found.backend_api, found.stub):
        _demand(path)
    return found


def given(environment: dict[str, str], flag: Path | None) -> Path | None:
    """The tritonserver that was asked for by flag, else by environment, else none."""
    named = environment.get(ENVIRONMENT)
    return flag or (Path(named) if named else None)


def check_numpy(version: str | None = None) -> None:
    """Refuse numpy 2: the wheel's stub was built for numpy 1 and would read tensors as zeros."""
    installed = version or importlib.metadata.version("numpy")
    if int(installed.split(".")[0]) >= 2:
        raise Failure(
            "numpy_too_new",
            f"numpy {installed} is installed; Triton's Python backend would read wrong values",
            where="numpy",
            remedy="install 'numpy>=1.26,<2'",
        )


def _wheel_root() -> Path:
    spec = importlib.util.find_spec("pytriton")
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        raise Failure(
            "tritonserver_missing",
            "there is no tritonserver",
            where=PACKAGE,
            remedy=f"install {PACKAGE}, or name a tritonserver with --tritonserver",
        )
    return Path(places[0]) / "tritonserver"


def _first(*paths: Path) -> Path:
    return next((path for path in paths if path.exists()), paths[-1])


def _demand(path: Path) -> None:
    if path.is_file() and os.access(path, os.R_OK):
        return
    raise Failure(
        "tritonserver_missing",
        "the file is not there or cannot be read",
        where=str(path),
        remedy=f"install {PACKAGE}, or name a complete tritonserver with --tritonserver",
    )
