"""The admin API of the control server, over HTTP."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.fakes.control_world import ROUTE, ControlWorld

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

SHARE = {"alias": None, "weight": 100}
APPLIED = {"content-type": "application/yaml"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ControlWorld]:
    """One control server, Envoy and pair of nodes for all tests of this file."""
    async with ControlWorld(tmp_path_factory.mktemp("world")) as made:
        await made.up("n1")
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def world(shared: ControlWorld) -> ControlWorld:
    """The shared world as it was at first, whatever tests before have done."""
    await shared.renew()
    return shared


async def test_apply_and_delete_write_the_folder_and_publish(world: ControlWorld) -> None:
    text, before = ROUTE % 2, await world.generation()
    status, body = await world.send("POST", "/v1/apply?dryRun=1", text, **APPLIED)
    assert (status, body["results"][0]["result"]) == (200, "configured")
    assert await world.generation() == before
    status, body = await world.send("POST", "/v1/apply", text, **APPLIED)
    assert (status, body["generation"]) == (200, before + 1)
    assert "version: 2" in (world.config / "route.yaml").read_text()
    status, body = await world.send("POST", "/v1/apply", text, **APPLIED)
    assert (body["results"][0]["result"], body["generation"]) == ("unchanged", before + 1)
    other = text.replace("name: echo", "name: other") + "  match: {hosts: [other.example]}\n"
    status, body = await world.send("POST", "/v1/apply", other, **APPLIED)
    assert body["results"] == [{"kind": "Route", "name": "other", "result": "created"}]
    assert (await world.send("DELETE", "/v1/objects/routes/other"))[0] == 200
    assert (await world.send("DELETE", "/v1/objects/routes/other"))[0] == 404
    status, body = await world.send("DELETE", "/v1/objects/models/echo")
    assert (status, body["status"]) == (400, 400)
    assert body["problems"], "a route still names the model"


async def test_every_edit_is_a_revision_to_go_back_to(world: ControlWorld) -> None:
    first = await world.generation()
    query = "author=ana&note=try%20two"
    status, body = await world.send("POST", f"/v1/apply?{query}", ROUTE % 2, **APPLIED)
    assert (status, body["generation"]) == (200, first + 1)
    newest, before, *_ = (await world.admin("/v1/revisions"))["items"]
    assert (newest["revision"], newest["author"], newest["note"]) == (first + 1, "ana", "try two")
    assert (newest["origin"], before["origin"], before["revision"]) == ("api", "folder", first)
    shown = await world.admin(f"/v1/revisions/{first + 1}")
    assert shown["changes"] == [
        {
            "kind": "Route",
            "name": "echo",
            "what": "changed",
            "fields": [
                {"path": "spec.split[version=1]", "before": SHARE | {"version": 1}, "after": None},
                {"path": "spec.split[version=2]", "before": None, "after": SHARE | {"version": 2}},
            ],
        }
    ]
    assert "+  split: [{version: 2}]" in shown["diff"]
    await world.serving("2")
    back = f"/v1/revisions/{first}/rollback"
    assert (await world.send("POST", f"{back}?dryRun=1"))[1]["generation"] == first + 1
    status, body = await world.send("POST", back)
    assert (status, body["generation"]) == (200, first + 2)
    await world.serving("1")
    assert (world.config / "route.yaml").read_text() == ROUTE % 1
    assert (await world.admin("/v1/revisions"))["items"][0]["note"] == f"rollback to {first}"
    assert (await world.send("POST", "/v1/revisions/999999/rollback"))[0] == 404
    assert (await world.send("GET", "/v1/revisions/999999"))[0] == 404


async def test_a_bad_apply_is_refused_with_every_problem_and_writes_nothing(
    world: ControlWorld,
) -> None:
    before = (world.config / "route.yaml").read_text()
    text = ROUTE % 99 + "  timeot: 1s\n"
    status, body = await world.send("POST", "/v1/apply", text, **APPLIED)
    assert status == 400
    assert body["problems"]
    assert (world.config / "route.yaml").read_text() == before


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example"}, {"Origin": "https://evil.example"}],
    ids=["another host", "a web page"],
)
async def test_the_admin_api_answers_this_machine_only(
    world: ControlWorld, headers: dict[str, str]
) -> None:
    status, body = await world.send("GET", "/v1/generation", **headers)
    assert (status, body["title"]) == (403, "Forbidden")


async def test_metrics_and_errors_have_their_forms(world: ControlWorld) -> None:
    url = f"http://127.0.0.1:{world.admin_port}"
    async with world.http.get(f"{url}/metrics") as answer:
        text = await answer.text()
    assert f"headrace_config_generation {await world.generation()}.0" in text
    assert 'headrace_xds_streams{role="gateway"} 1.0' in text
    assert 'headrace_gpu_nodes{state="connected"} 1.0' in text
    for path in ("/v1/objects/models/none", "/v1/objects/things", "/nothing"):
        status, body = await world.send("GET", path)
        assert (status, body["status"]) == (404, 404)
    async with world.http.post(f"{url}/v1/generation") as answer:
        assert answer.status == 405
        assert answer.content_type == "application/problem+json"
