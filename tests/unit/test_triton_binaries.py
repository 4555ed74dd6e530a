"""Finding tritonserver: in the wheel, or where somebody says."""

import sys
from pathlib import Path

import pytest

from headrace_models import binaries
from headrace_models.failure import Failure


def container(root: Path, *, stub: bool = True) -> Path:
    """A tritonserver laid out as in NVIDIA's container."""
    files = ["bin/tritonserver", "backends/python/libtriton_python.so"]
    files.append("backends/python/triton_python_backend_utils.py")
    if stub:
        files.append("backends/python/triton_python_backend_stub")
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).touch()
    return root / "bin" / "tritonserver"


def test_the_wheel_is_found_without_importing_it() -> None:
    found = binaries.locate()
    assert found.server.is_file()
    assert found.stub.parent.name == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert "pytriton" not in sys.modules


def test_another_tritonserver_may_be_named(tmp_path: Path) -> None:
    server = container(tmp_path)
    found = binaries.locate(server)
    assert found.server == server
    assert found.stub == tmp_path / "backends/python/triton_python_backend_stub"


def test_an_incomplete_tritonserver_is_refused_by_the_missing_file(tmp_path: Path) -> None:
    server = container(tmp_path, stub=False)
    with pytest.raises(Failure, match="triton_python_backend_stub"):
        binaries.locate(server)


def test_the_flag_comes_before_the_environment() -> None:
    named = {binaries.ENVIRONMENT: "/b"}
    assert binaries.given(named, Path("/a")) == Path("/a")
    assert binaries.given(named, None) == Path("/b")
    assert binaries.given({}, None) is None


def test_numpy_2_is_refused_because_tensors_would_be_read_wrong() -> None:
    binaries.check_numpy("1.26.4")
    with pytest.raises(Failure, match="numpy_too_new"):
        binaries.check_numpy("2.0.1")
