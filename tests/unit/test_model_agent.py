"""The agent's answers when weights are not to be had, and its bound on what it reads."""

import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from headrace import limits
from headrace_models import agent, binaries, layout
from headrace_models.command import Interpreter
from headrace_models.failure import Failure
from headrace_models.placement import Placement
from headrace_models.repository import Repository, models_dir
from headrace_models.supervisor import Supervisor
from tests.fakes.model_server import assigned, echo

BODY = msgspec.json.encode(assigned("vision", 1))
PATH = "/v1/versions/vision/1"


Client = TestClient[web.Request, web.Application]


class NoWeights:
    """A source of weights that never has any."""

    def __init__(self) -> None:
        self.permanent = False

    async def ready(self, artifact: str) -> Mapping[str, str]:
        raise Failure(
            "weights_gone", artifact, where="here", remedy="wait", permanent=self.permanent
        )


@pytest.fixture
def weights() -> NoWeights:
    return NoWeights()


@pytest.fixture
async def client(tmp_path: Path, weights: NoWeights) -> AsyncIterator[Client]:
    places = layout.layout(tmp_path, tmp_path / "agent.sock")
    found = binaries.locate()
    layout.prepare(places, found)
    supervisor = Supervisor(
        binaries=found,
        layout=places,
        interpreter=Interpreter(tmp_path, tmp_path, tmp_path),
        base_environment=os.environ,
        metrics_port=0,
        log=print,
    )
    placement = Placement(Repository(places, models_dir()), weights)
    async with TestClient(TestServer(agent.app(placement, supervisor))) as made:
        yield made


@pytest.mark.parametrize(("permanent", "status"), [(False, 503), (True, 422)])
async def test_a_failure_says_whether_it_will_pass(
    client: Client, weights: NoWeights, permanent: bool, status: int
) -> None:
    weights.permanent = permanent
    response = await client.put(PATH, data=BODY)
    assert response.status == status
    assert await response.json() == {
        "code": "weights_gone",
        "error": "efficientnet-lite0",
        "where": "here",
        "remedy": "wait",
    }


async def test_a_disk_that_takes_nothing_is_a_passing_failure(
    client: Client, tmp_path: Path
) -> None:
    (tmp_path / "placed").rmdir()
    (tmp_path / "placed").touch()
    response = await client.put("/v1/versions/echo/1", data=msgspec.json.encode(echo()))
    assert response.status == 503
    assert (await response.json())["code"] == "state_dir_not_writable"


async def test_a_body_beyond_the_limit_is_not_read(client: Client) -> None:
    response = await client.put(PATH, data=b" " * limits.ASSIGNMENT_BYTES + BODY)
    assert response.status == 413


async def test_triton_is_reported_dead_until_it_answers(client: Client) -> None:
    response = await client.get("/v1/status")
    status = await response.json()
    assert status["triton"]["alive"] is False
    assert status["triton"]["incarnation"] == 0
    assert status["versions"] == []
