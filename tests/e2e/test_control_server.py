"""The control server as a process, with a real Envoy and fake GPU nodes."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.control_world import MODEL, ROUTE, ControlWorld, until
from tests.fakes.gpu_node import Load

pytestmark = pytest.mark.e2e

APPLIED = {"content-type": "application/yaml"}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ControlWorld]:
    async with ControlWorld(tmp_path) as made:
        yield made


async def up(world: ControlWorld, *nodes: str) -> None:
    """Everything running, and the gateway answering."""
    await world.start()
    for name in nodes or ("n1", "n2"):
        await world.add_node(name)
    await world.start_envoy()
    await world.serving()


async def ready(world: ControlWorld, node: str, name: str = "echo@1") -> bool:
    held = (await world.held(node)).get(name)
    return held is not None and held["state"] == "ready"


async def test_a_yaml_edit_is_live_within_a_second_and_loses_no_request(
    world: ControlWorld,
) -> None:
    await up(world)

    async def on_version_2() -> bool:
        return await world.infer() == "2"

    async with world.under_load():
        world.route_to(2)
        took_s = await until(on_version_2)
    # A second is what it takes on an idle machine; the rest is for busy ones.
    assert took_s < 3
    generation = await world.admin("/v1/generation")
    assert (generation["generation"], generation["accepted"]) == (2, True)


async def test_a_broken_edit_changes_nothing_but_the_list_of_problems(world: ControlWorld) -> None:
    await up(world)

    async def refused() -> bool:
        return not (await world.admin("/v1/problems"))["accepted"]

    async with world.under_load():
        world.write("route.yaml", ROUTE % 2 + "  timeot: 3s\n  split: []\n")
        await until(refused)
    problems = (await world.admin("/v1/problems"))["items"]
    assert len(problems) >= 2, "all errors at once"
    assert any("did you mean" in problem["text"] for problem in problems)
    assert (await world.admin("/v1/generation"))["generation"] == 1
    route = await world.admin("/v1/objects/route/echo")
    assert route["status"]["conditions"][0]["status"] == "False"
    assert await world.infer() == "1"

    async def fixed() -> bool:
        return await world.infer() == "2"

    world.route_to(2)
    await until(fixed)


async def test_a_restart_empties_no_endpoint_set_and_sends_nothing_twice(
    world: ControlWorld,
) -> None:
    await up(world)
    hosts = await world.hosts()
    assert len(hosts) == 2
    async with world.under_load():
        await world.stop(signal.SIGKILL)
        for node in world.nodes.values():
            await node.disconnect()
        before = await world.stats("(cluster_manager.cds|listener_manager.lds).update_success")
        await world.start()

        async def gateway_back() -> bool:
            items = (await world.admin("/v1/proxies"))["items"]
            return any(item["id"] == "gateway/eu" and item["connected"] for item in items)

        await until(gateway_back)
        for _ in range(40):
            assert (await world.hosts()).keys() == hosts.keys()
            await asyncio.sleep(0.05)
        withheld = (await world.admin("/v1/endpoints"))["items"]
        assert all(item["withheld"] for item in withheld)
        for node in world.nodes.values():
            node.offered.clear()
            node.connect()

        async def answered() -> bool:
            return not any(c["withheld"] for c in (await world.admin("/v1/endpoints"))["items"])

        await until(answered)
        assert (await world.hosts()).keys() == hosts.keys()
    after = await world.stats("(cluster_manager.cds|listener_manager.lds).update_success")
    assert before == after, "unchanged clusters and listeners are not sent again"
    assert [node.offered for node in world.nodes.values()] == [[], []], "nor are assignments"


async def test_load_moves_weights_and_their_loss_gives_the_median(world: ControlWorld) -> None:
    await up(world)
    busy, idle = world.nodes.values()
    busy.set_load("echo", 1, Load(utilization=0.9))
    idle.set_load("echo", 1, Load(utilization=0.1))

    async def moved() -> bool:
        weights = await world.hosts()
        return weights[busy.address] * 4 < weights[idle.address]

    await until(moved)
    busy.set_load("echo", 1, Load(utilization=0.1))

    async def recovered() -> bool:
        weights = await world.hosts()
        return weights[busy.address] == weights[idle.address]

    await until(recovered)


async def test_cut_control_streams_remove_nothing(world: ControlWorld) -> None:
    await up(world)
    async with world.under_load():
        for node in world.nodes.values():
            await node.disconnect()

        async def suspect() -> bool:
            nodes = (await world.admin("/v1/nodes"))["items"]
            return all(node["state"] == "suspect" for node in nodes)

        await until(suspect)
        assert len(await world.hosts()) == 2
        assert (await world.endpoints()).keys() == {"n1", "n2"}


async def test_a_node_that_refuses_a_version_is_no_endpoint_and_says_why(
    world: ControlWorld,
) -> None:
    await up(world, "n1")
    node = await world.add_node("n2", refusals={"echo@1": "not enough memory"})

    async def failed() -> bool:
        return bool((await world.held("n2")).get("echo@1", {}).get("state") == "failed")

    await until(failed)
    held = (await world.held("n2"))["echo@1"]
    assert (held["serves"], held["message"]) == (False, "not enough memory")
    assert (await world.endpoints()).keys() == {"n1"}
    assert list(await world.hosts()) == [world.nodes["n1"].address]
    model = await world.admin("/v1/objects/model/echo")
    condition = model["status"]["conditions"][-1]
    assert (condition["type"], condition["status"]) == ("Ready", "False")
    assert "not enough memory" in condition["message"]
    node.refusals.clear()
    await until(lambda: ready(world, "n2"))
    assert (await world.held("n2"))["echo@1"]["attempt"] >= 1


async def test_an_edit_that_every_node_refuses_takes_no_endpoint_away(world: ControlWorld) -> None:
    await up(world)
    for node in world.nodes.values():
        node.refusals["echo@1"] = "no such artifact"
    edited = MODEL.replace("executor: identity}", "executor: identity, threads: 2}", 1)

    async def failed() -> bool:
        held = [(await world.held(name))["echo@1"] for name in world.nodes]
        return all(item["state"] == "failed" and item["serves"] for item in held)

    async with world.under_load():
        world.write("model.yaml", edited)
        await until(failed)
        assert len(await world.hosts()) == 2


async def test_a_leaving_node_drains_without_a_lost_request(world: ControlWorld) -> None:
    await up(world)
    async with world.under_load():
        world.nodes["n2"].leave()

        async def draining() -> bool:
            return bool((await world.endpoints())["n2"]["health"] == "draining")

        await until(draining)
        await world.nodes["n2"].disconnect()

        async def gone() -> bool:
            return len(await world.hosts()) == 1

        await until(gone)


async def test_a_dropped_version_leaves_the_nodes_after_the_gateway(world: ControlWorld) -> None:
    await up(world)
    async with world.under_load():
        world.write("model.yaml", MODEL.replace("  - {version: 2, executor: identity}\n", ""))

        async def unloaded() -> bool:
            return all("echo@2" not in node.held for node in world.nodes.values())

        await until(unloaded)
    assert "cluster.m-echo-2-http.membership_total" not in await world.stats("m-echo-2-http")


async def test_a_broken_folder_at_start_serves_what_was_good(world: ControlWorld) -> None:
    await up(world)
    assert await world.stop() == 0
    world.write("route.yaml", "kind: [")
    await world.start()
    async with world.under_load():
        generation = await world.admin("/v1/generation")
        assert (generation["generation"], generation["accepted"]) == (1, False)
        assert (await world.send("GET", "/readyz"))[0] == 200


async def test_without_any_good_configuration_streams_wait_and_the_reason_is_shown(
    world: ControlWorld,
) -> None:
    world.write("route.yaml", "kind: [")
    await world.start()
    status, body = await world.send("GET", "/readyz")
    assert (status, body["title"]) == (503, "Service Unavailable")
    assert (await world.admin("/v1/problems"))["items"]
    await world.add_node("n1")
    world.route_to(1)
    await until(lambda: ready(world, "n1"))


async def test_apply_and_delete_write_the_folder_and_publish(world: ControlWorld) -> None:
    await world.start()
    text = ROUTE % 2
    status, body = await world.send("POST", "/v1/apply?dryRun=1", text, **APPLIED)
    assert (status, body["results"][0]["result"]) == (200, "configured")
    assert (await world.admin("/v1/generation"))["generation"] == 1
    status, body = await world.send("POST", "/v1/apply", text, **APPLIED)
    assert (status, body["generation"]) == (200, 2)
    assert "version: 2" in (world.config / "route.yaml").read_text()
    status, body = await world.send("POST", "/v1/apply", text, **APPLIED)
    assert (body["results"][0]["result"], body["generation"]) == ("unchanged", 2)
    other = text.replace("name: echo", "name: other") + "  match: {hosts: [other.example]}\n"
    status, body = await world.send("POST", "/v1/apply", other, **APPLIED)
    assert body["results"] == [{"kind": "Route", "name": "other", "result": "created"}]
    assert (await world.send("DELETE", "/v1/objects/routes/other"))[0] == 200
    assert (await world.send("DELETE", "/v1/objects/routes/other"))[0] == 404
    status, body = await world.send("DELETE", "/v1/objects/models/echo")
    assert (status, body["status"]) == (400, 400)
    assert body["problems"], "a route still names the model"


async def test_a_bad_apply_is_refused_with_every_problem_and_writes_nothing(
    world: ControlWorld,
) -> None:
    await world.start()
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
    await world.start()
    status, body = await world.send("GET", "/v1/generation", **headers)
    assert (status, body["title"]) == (403, "Forbidden")


async def test_metrics_and_errors_have_their_forms(world: ControlWorld) -> None:
    await up(world, "n1")
    url = f"http://127.0.0.1:{world.admin_port}"
    async with world.http.get(f"{url}/metrics") as answer:
        text = await answer.text()
    assert "headrace_config_generation 1.0" in text
    assert 'headrace_xds_streams{role="gateway"} 1.0' in text
    assert 'headrace_gpu_nodes{state="connected"} 1.0' in text
    for path in ("/v1/objects/models/none", "/v1/objects/things", "/nothing"):
        status, body = await world.send("GET", path)
        assert (status, body["status"]) == (404, 404)
    async with world.http.post(f"{url}/v1/generation") as answer:
        assert answer.status == 405
        assert answer.content_type == "application/problem+json"
