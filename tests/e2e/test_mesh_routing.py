"""Splits, pins, shadows and edits through real Envoys, sidecars and Tritons."""

import math
import time
from collections.abc import Iterator

import aiohttp
import pytest

from headrace_xds.local.mesh import LocalMesh
from tests.fakes import echo_mesh
from tests.fakes.echo_mesh import KEY, edit, in_effect, infer, stats
from tests.fakes.load import Answer, Call, Traffic, eventually, send_all, steady

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

REQUESTS = 2_000
SIGMAS = 4.0


@pytest.fixture
def routes(echo: LocalMesh) -> Iterator[LocalMesh]:
    """The mesh, with its routes put back afterwards."""
    path = echo.config_dir / "routes.yaml"
    before = path.read_text()
    yield echo
    path.write_text(before)
    deadline = time.monotonic() + 20
    while not in_effect(echo) and time.monotonic() < deadline:
        time.sleep(0.1)


def url(mesh: LocalMesh, region: str = "eu") -> str:
    return mesh.gateway(f"gw-{region}").url


def by_version(answer: Answer) -> str:
    return answer.version


async def one(mesh: LocalMesh, call: Call) -> Answer:
    return (await send_all(url(mesh), [call])).answers[0]


async def sides(mesh: LocalMesh, users: list[str]) -> dict[str, str]:
    """Version that each user lands on."""
    calls = [infer("echo", user, headers={"x-user": user}) for user in users]
    traffic = await send_all(url(mesh), calls)
    assert not traffic.failed, traffic.statuses
    return {_echoed(answer): answer.version for answer in traffic.answers}


def _echoed(answer: Answer) -> str:
    text: str = answer.body.decode().partition('"data":["')[2].partition('"')[0]
    return text


async def test_a_request_travels_the_whole_road_in_both_regions(echo: LocalMesh) -> None:
    for region in ("eu", "us"):
        traffic = await send_all(url(echo, region), [infer("echo") for _ in range(8)])
        assert traffic.statuses == {200: 8}
        assert {answer.node.split("-")[0] for answer in traffic.answers} == {region}


async def test_inference_needs_a_key_and_health_does_not(echo: LocalMesh) -> None:
    bare = Call(infer("echo").path, infer("echo").body, {"content-type": "application/json"})
    wrong = Call(bare.path, bare.body, {**bare.headers, "x-api-key": "wrong"})
    assert (await one(echo, bare)).status == 401
    assert (await one(echo, wrong)).status == 401
    async with aiohttp.ClientSession() as session:
        for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/echo/ready"):
            async with session.get(url(echo) + path) as reply:
                assert reply.status == 200, path


async def test_five_percent_of_random_requests_reach_the_canary(echo: LocalMesh) -> None:
    traffic = await send_all(url(echo), [infer("echo") for _ in range(REQUESTS)])
    assert traffic.statuses == {200: REQUESTS}
    canary = round(traffic.share(by_version).get("2", 0.0) * REQUESTS)
    spread = SIGMAS * math.sqrt(REQUESTS * 0.05 * 0.95)
    assert abs(canary - REQUESTS * 0.05) <= spread, f"{canary} of {REQUESTS} went to the canary"


async def test_growing_the_canary_moves_only_the_callers_that_must_move(routes: LocalMesh) -> None:
    users = [f"user-{number}" for number in range(400)]
    before = await sides(routes, users)
    assert await sides(routes, users) == before, "the same key must land on the same side"
    edit(routes, "routes.yaml", "{alias: stable, weight: 95}", "{alias: stable, weight: 80}")
    edit(routes, "routes.yaml", "{alias: canary, weight: 5}", "{alias: canary, weight: 20}")

    async def moved() -> bool:
        now = await sides(routes, users)
        return sum(version == "2" for version in now.values()) > len(users) * 0.12

    await eventually(moved, what="a fifth of the callers on the canary")
    after = await sides(routes, users)
    assert all(after[user] == "2" for user in users if before[user] == "2")


async def test_a_header_chooses_the_arm_of_an_experiment(echo: LocalMesh) -> None:
    calls = [infer("echo", headers={"x-cohort": "beta"}) for _ in range(20)]
    traffic = await send_all(url(echo), calls)
    assert traffic.share(by_version) == {"2": 1.0}


async def test_a_version_in_the_path_pins_it(echo: LocalMesh) -> None:
    for version in ("1", "2"):
        call = infer("echo")
        pinned = Call(f"/v2/models/echo/versions/{version}/infer", call.body, call.headers)
        traffic = await send_all(url(echo), [pinned] * 10)
        assert traffic.statuses == {200: 10}
        assert traffic.share(by_version) == {version: 1.0}


async def test_an_unknown_model_is_not_found(echo: LocalMesh) -> None:
    answer = await one(echo, infer("no-such-model"))
    assert answer.status == 404
    assert b"model_not_found" in answer.body


async def test_the_shadow_receives_and_its_failure_is_not_noticed(echo: LocalMesh) -> None:
    shadow = "cluster.s-frail-2-http.upstream_rq_total"
    before = stats(echo, "gw-eu", "cluster.s-frail-2-http").get(shadow, 0)
    traffic = await send_all(url(echo), [infer("frail", f"copy {n}") for n in range(40)])
    assert traffic.share(by_version) == {"1": 1.0}

    def mirrored() -> bool:
        return stats(echo, "gw-eu", "cluster.s-frail-2-http").get(shadow, 0) > before

    await eventually(mirrored, what="mirrored requests")


async def test_an_edit_under_load_fails_no_request_and_reaches_every_proxy(
    routes: LocalMesh,
) -> None:
    async with steady(url(routes), lambda n: infer("echo", f"{n}"), rps=80) as traffic:
        await eventually(lambda: len(traffic.answers) > 80, what="the first answers")
        edit(routes, "routes.yaml", "{alias: stable, weight: 95}", "{alias: stable, weight: 1}")
        edit(routes, "routes.yaml", "{alias: canary, weight: 5}", "{alias: canary, weight: 99}")

        def mostly_canary() -> bool:
            recent = Traffic(traffic.answers[-60:])
            return recent.share(by_version).get("2", 0.0) > 0.8

        await eventually(mostly_canary, what="traffic on the canary")
        await eventually(lambda: in_effect(routes), what="every proxy in effect")
    assert not traffic.failed, traffic.statuses


async def test_broken_yaml_lists_every_error_and_touches_no_traffic(routes: LocalMesh) -> None:
    async with steady(url(routes), lambda n: infer("echo", f"{n}"), rps=40) as traffic:
        edit(routes, "routes.yaml", "sticky: {header: x-user}", "stickey: {header: x-user}")
        edit(routes, "routes.yaml", "mirror: {alias: canary, maxR", "mirror: {alias: none, maxR")

        def problems() -> bool:
            page = echo_mesh.admin(routes, "/v1/problems")
            text = str(page)
            return all(part in text for part in ("stickey", "did you mean", "alias not found"))

        await eventually(problems, what="the problems of the broken file")
        await eventually(lambda: len(traffic.answers) > 120, what="more answers")
    assert not traffic.failed, traffic.statuses


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"inputs":[{"name":"data","shape":[4611686018427387904],"datatype":"FP32","data":[1]}]}',
         400),
        (b'{"inputs":[{"name":"data","shape":[2305843009213693952],"datatype":"INT64","data":[1]}]'
         b"}", 400),
        (b'{"inputs":[{"name":"data","shape":[53687091200],"datatype":"FP32","data":[1]}]}', 400),
        (b"[" * 200_000, 400),
        (b"x" * (10 * 2**20 + 64 * 2**10 + 1), 413),
    ],
    ids=["product-wraps-fp32", "product-wraps-int64", "huge-shape", "deep-json", "too-large"],
)  # fmt: skip
async def test_requests_that_crash_a_bare_triton_are_refused(
    echo: LocalMesh, body: bytes, status: int
) -> None:
    pids = {node.place.name: echo.pids(f"triton/{node.place.name}") for node in echo.plan.nodes}
    answer = await one(echo, Call("/v2/models/echo/infer", body, KEY))
    assert answer.status == status, answer.body[:300]
    assert (await one(echo, infer("echo"))).status == 200
    after = {node.place.name: echo.pids(f"triton/{node.place.name}") for node in echo.plan.nodes}
    assert after == pids, "a Triton was restarted"


async def test_a_body_of_ten_megabytes_passes(echo: LocalMesh) -> None:
    text = "x" * (10 * 2**20)
    answer = await one(echo, infer("echo", text))
    assert answer.status == 200
    assert len(answer.body) > len(text)
