"""What the tests of this folder share: each is started once, and left as it was found."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from headrace_xds.local.mesh import LocalMesh
from headrace_xds.local.start import start
from tests.fakes import echo_mesh, lab_models
from tests.fakes.front_door import FrontDoor, front_door
from tests.fakes.triton_process import TritonProcess, running_triton

LOCAL_READY_WITHIN_S = 120.0
"""What is promised of the local mesh, weights converted beforehand."""


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalMesh]:
    with echo_mesh.running("echo", tmp_path_factory.mktemp("echo")) as mesh:
        yield mesh


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalMesh]:
    """The mesh that ``make up`` starts, real models and all, on free ports."""
    examples = Path(__file__).parents[2] / "mesh-config" / "examples" / "local"
    with start(examples, tmp_path_factory.mktemp("local"), ports="auto", wait=False) as mesh:
        mesh.wait_ready(within_s=LOCAL_READY_WITHIN_S)
        yield mesh


@pytest.fixture(scope="session")
def triton() -> Iterator[TritonProcess]:
    """A Triton with the models of ``lab_models``; tests that kill one start their own."""
    with running_triton() as triton:
        lab_models.install(triton)
        yield triton


@pytest.fixture
async def door(triton: TritonProcess) -> AsyncIterator[FrontDoor]:
    async with front_door(triton.target, lab_models.ALL) as door:
        yield door
