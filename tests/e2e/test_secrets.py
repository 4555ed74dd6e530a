"""Secrets in files, a control server and a real Envoy: what is served, refused and never shown."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.certificates import Pair, pair
from tests.fakes.control_world import ControlWorld, until
from tests.fakes.tls_caller import der, shown

pytestmark = [pytest.mark.e2e]

FIRST, SECOND = pair("first"), pair("second")
OF_SECRETS = ("HR0107", "HR0503")
PAGES = (
    "/v1/generation", "/v1/problems", "/v1/objects", "/v1/objects/Mesh?defaults=1", "/v1/proxies",
    "/v1/nodes", "/v1/endpoints", "/metrics",
)  # fmt: skip


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ControlWorld]:
    """A control server whose only gateway speaks TLS; its secret is not there yet."""
    async with ControlWorld(tmp_path) as made:
        made.secrets = tmp_path / "secrets"
        made.secrets.mkdir()
        text = (made.config / "mesh.yaml").read_text()
        port = f"port: {made.gateway_port}"
        assert text.count(port) == 1
        made.write("mesh.yaml", text.replace(port, f"{port}, tls: {{secret: gateway}}"))
        yield made


async def in_service(world: ControlWorld, made: Pair) -> bool:
    return await shown(world.gateway_port) == der(made)


async def problems(world: ControlWorld) -> list[tuple[str, str, int, str]]:
    """What is said of secrets: code, place and message."""
    found = (await world.admin("/v1/problems"))["items"]
    return [
        (p["code"], p["file"], p["line"], p["message"]) for p in found if p["code"] in OF_SECRETS
    ]


async def test_a_secret_is_waited_for_rotated_broken_lost_and_never_shown(
    world: ControlWorld,
) -> None:
    assert world.secrets is not None
    folder = world.secrets / "gateway"
    await world.start()
    # What never was is refused: nothing would be there to serve.
    assert await problems(world) == [
        ("HR0107", "mesh.yaml", 10, 'secret "gateway": there is no such secret')
    ]
    assert await world.generation() == 0

    FIRST.put(folder)
    await until(lambda: accepted(world))
    await world.add_node("n1")
    await world.start_envoy()
    await until(lambda: in_service(world, FIRST))
    assert await problems(world) == []

    SECOND.put(folder)
    # A second is what it takes on an idle machine; the rest is for busy ones.
    assert await until(lambda: in_service(world, SECOND)) < 3
    assert await world.stats("listener_manager.listener_(modified|in_place_updated)") == {
        "listener_manager.listener_in_place_updated": 0,
        "listener_manager.listener_modified": 0,
    }

    (folder / "..data" / "tls.key").write_bytes(FIRST.key)
    broken = 'secret "gateway": tls.key does not belong to tls.crt'
    await until(lambda: has_problem(world, "HR0503", broken))
    assert await in_service(world, SECOND)
    assert (await world.admin("/v1/generation"))["accepted"]

    (folder / "..data").unlink()
    await until(lambda: has_problem(world, "HR0503", 'secret "gateway": its folder has neither'))
    # A server that never saw the content leaves the gateway with what it has.
    await world.stop()
    await world.start()
    await until(lambda: connected(world))
    assert await has_problem(world, "HR0503", 'secret "gateway": its folder has neither')
    assert await in_service(world, SECOND)
    await until(lambda: accepted(world))

    FIRST.put(folder)
    await until(lambda: in_service(world, FIRST))
    await until(lambda: no_problem(world))
    await nothing_is_shown(world)


async def accepted(world: ControlWorld) -> bool:
    return bool((await world.admin("/v1/generation"))["accepted"])


async def connected(world: ControlWorld) -> bool:
    return bool((await world.admin("/v1/proxies"))["items"])


async def no_problem(world: ControlWorld) -> bool:
    return await problems(world) == []


async def has_problem(world: ControlWorld, code: str, message: str) -> bool:
    return [(c, m.startswith(message)) for c, _, _, m in await problems(world)] == [(code, True)]


async def nothing_is_shown(world: ControlWorld) -> None:
    """Neither key is in a log, a state file or a page of the admin API."""
    pages = [await world.text(path) for path in PAGES]
    written = [path.read_bytes() for path in world.state.rglob("*") if path.is_file()]
    everything = b"\n".join([world.log().encode(), *(page.encode() for page in pages), *written])
    assert b"gateway" in everything
    for made in (FIRST, SECOND):
        for line in made.key.splitlines()[1:-1]:
            assert line not in everything
