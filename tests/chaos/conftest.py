"""Meshes that the tests of this folder break; each must be whole again when a test ends."""

import time
from collections.abc import Iterator

import pytest

from headrace_xds.local.mesh import LocalMesh
from tests.fakes import echo_mesh


@pytest.fixture(scope="module")
def frail_mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalMesh]:
    with echo_mesh.running("echo", tmp_path_factory.mktemp("chaos")) as mesh:
        yield mesh


@pytest.fixture
def mesh(frail_mesh: LocalMesh) -> Iterator[LocalMesh]:
    """The mesh, healed without hands before the next test."""
    yield frail_mesh
    frail_mesh.wait_ready(within_s=90)
    deadline = time.monotonic() + 30
    while not whole(frail_mesh):
        assert time.monotonic() < deadline, "an Envoy still misses a host"
        time.sleep(0.2)


def whole(mesh: LocalMesh) -> bool:
    """Whether both gateways send to every node."""
    everywhere = {node.place.address for node in mesh.plan.nodes}
    return all(
        echo_mesh.healthy(mesh, gateway.name, "m-echo-1-http") == everywhere
        for gateway in mesh.plan.gateways
    )
