"""The control server with a real Envoy that refuses what passed every check."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.control_world import ControlWorld, until

pytestmark = pytest.mark.e2e


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ControlWorld]:
    async with ControlWorld(tmp_path, return_grace_s=0.2) as world:
        await world.up("n1")
        yield world


@pytest.fixture
async def busy_port() -> AsyncIterator[int]:
    """A port that another program listens on: no check finds that, and no Envoy can bind it."""
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def condition(world: ControlWorld, path: str) -> dict[str, Any]:
    """Whether an object is in effect, and why not."""
    found = (await world.admin(path))["status"]["conditions"]
    return next(item for item in found if item["type"] == "InEffect")


async def cli(world: ControlWorld, *arguments: str) -> tuple[int, str]:
    """Status and output of a command."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headrace_xds.cli.main", *arguments),
        *("--server", f"http://127.0.0.1:{world.admin_port}"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def until_reason(world: ControlWorld, reason: str) -> None:
    """Wait until the mesh is, or is not, in effect for a reason."""

    async def given() -> bool:
        return bool((await condition(world, "/v1/objects/mesh/test"))["reason"] == reason)

    await until(given)


def move_gateway(world: ControlWorld, before: int, after: int) -> None:
    """Have the gateway listen elsewhere."""
    text = (world.config / "mesh.yaml").read_text()
    world.write("mesh.yaml", text.replace(f"port: {before}", f"port: {after}"))


async def test_a_refused_edit_is_told_with_proxy_line_and_text_and_mended_at_once(
    world: ControlWorld, busy_port: int
) -> None:
    move_gateway(world, world.gateway_port, busy_port)

    async def quarantined() -> bool:
        return bool((await world.admin("/v1/quarantine"))["items"])

    await until(quarantined)
    (held,) = (await world.admin("/v1/quarantine"))["items"]
    assert (held["type"], held["name"], held["proxy"]) == ("LDS", "gateway", "gateway/eu")
    assert "in use" in held["message"]
    assert held["wantedBy"][0]["served"] != held["version"]
    told = await condition(world, "/v1/objects/mesh/test")
    assert (told["status"], told["reason"]) == ("False", "Quarantined")
    assert "gateway/eu" in told["message"]
    assert held["message"] in told["message"]
    assert (await condition(world, "/v1/objects/route/echo"))["reason"] == "Acknowledged"
    assert await world.infer() == "1"
    assert "headrace_xds_quarantined 1.0" in await world.text("/metrics")
    status, output = await cli(world, "quarantine")
    assert status == 1
    assert "last good" in output
    # Siblings of what is held go live.
    world.route_to(2)
    await world.serving("2")

    await world.stop()
    await world.start()
    await until_reason(world, "Quarantined")
    assert await world.infer() == "2"
    move_gateway(world, busy_port, world.gateway_port)
    await until_reason(world, "Acknowledged")
    status, output = await cli(world, "quarantine", "--release", "LDS", "gateway")
    assert (status, output.strip()) == (0, "released LDS gateway: 1 refusals")
    assert (await cli(world, "quarantine", "--release", "LDS", "gateway"))[0] == 1
    assert (await cli(world, "quarantine"))[0] == 0
    status, output = await cli(world, "canary", "release")
    assert (status, "nobody waits" in output) == (1, True)
