"""The sidecar's client of the model server, and its reading of Triton's metrics page."""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from headrace import limits
from headrace_sidecar.gpu.agent import ANSWER_BYTES, Agent
from headrace_sidecar.gpu.serving import Serving
from headrace_sidecar.gpu.setback import Setback
from headrace_sidecar.gpu.signals import Sampler
from tests.fakes.sidecar_assignments import identity

GOLDEN = {"request": {"inputs": []}, "checks": [{"output": "x", "index": 0, "equals": "y"}]}
STATUS = {
    "triton": {
        "pid": 7,
        "alive": True,
        "incarnation": 3,
        "grpc_socket": "t.sock",
        "metrics_address": "127.0.0.1:1",
        "version": "2.51.0",
    },
    "versions": [{"model": "m", "version": 1, "executor": "identity"}],
}
Handler = Callable[[web.Request], Awaitable[web.Response]]


@asynccontextmanager
async def answering(handler: Handler) -> AsyncIterator[Agent]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    with tempfile.TemporaryDirectory(prefix="hr-a") as folder:
        socket = str(Path(folder) / "a.sock")
        await web.UnixSite(runner, socket).start()
        async with Agent(socket) as agent:
            yield agent
        await runner.cleanup()


def says(status: int, body: object) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        text = body if isinstance(body, str) else json.dumps(body)
        return web.Response(status=status, text=text)

    return handle


async def test_a_placement_sends_the_assignment_and_gets_the_golden_question() -> None:
    seen: list[tuple[str, str, str]] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append((request.method, request.path, (await request.json())["executor"]))
        return web.json_response({"triton_model": "m.1", "golden": GOLDEN})

    async with answering(handle) as agent:
        placed = await agent.place(identity("m"))
    assert seen == [("PUT", "/v1/versions/m/1", "identity")]
    assert placed.triton_model == "m.1"
    assert json.loads(bytes(placed.golden.request)) == GOLDEN["request"]
    assert placed.golden.checks[0].equals == "y"


async def test_the_status_tells_which_triton_is_there() -> None:
    async with answering(says(200, STATUS)) as agent:
        status = await agent.status()
    assert (status.triton.incarnation, status.triton.alive) == (3, True)
    assert [(one.model, one.version) for one in status.versions] == [("m", 1)]


@pytest.mark.parametrize(
    ("status", "body", "permanent", "message"),
    [
        (422, {"code": "bad_digest", "error": "wrong bytes"}, True, "wrong bytes (bad_digest)"),
        (503, {"code": "busy", "error": "later"}, False, "later (busy)"),
        (500, "oops", False, "the model server answered 500"),
        (200, "{", False, "the model server's answer cannot be read"),
    ],
    ids=["permanent", "transient", "a failure without words", "an answer that is none"],
)
async def test_failures_are_setbacks(
    status: int, body: object, permanent: bool, message: str
) -> None:
    async with answering(says(status, body)) as agent:
        with pytest.raises(Setback) as setback:
            await agent.place(identity("m"))
    assert setback.value.message.startswith(message)
    assert (setback.value.permanent, setback.value.counted) == (permanent, True)


async def test_a_model_server_that_is_not_there_says_nothing_about_the_version() -> None:
    async with Agent("nowhere.sock") as agent:
        with pytest.raises(Setback) as setback:
            await agent.status()
    assert not setback.value.counted


@asynccontextmanager
async def scraping(text: str) -> AsyncIterator[tuple[Sampler, asyncio.Event]]:
    """A sampler that reads this page, and an event that is set at the third request for it."""
    asked, often = 0, asyncio.Event()

    async def page(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        if asked >= 3:
            often.set()
        response = web.StreamResponse()
        await response.prepare(request)
        for start in range(0, len(text), 1_000):
            await response.write(text[start : start + 1_000].encode())
            await asyncio.sleep(0)
        return response

    app = web.Application()
    app.router.add_get("/metrics", page)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    serving = Serving(node="n1")
    sampler = Sampler(
        lambda: serving,
        answers=serving.answers,
        change=lambda: serving.change,
        gpu_busy=lambda: None,
        metrics_address=lambda: f"127.0.0.1:{runner.addresses[0][1]}",
        now=asyncio.get_running_loop().time,
    )
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(10):
        running = tasks.create_task(sampler.run())
        yield sampler, often
        running.cancel()
    await runner.cleanup()


async def test_the_whole_page_of_triton_is_read() -> None:
    text = "nv_cpu_utilization 0.5\n" * 2_000
    async with scraping(text) as (sampler, often):
        await often.wait()
        assert sampler.page.decode() == text


async def test_a_page_of_triton_over_the_limit_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "TRITON_METRICS_BYTES", 5_000)
    async with scraping("nv_cpu_utilization 0.5\n" * 2_000) as (sampler, often):
        await often.wait()
        assert sampler.page == b""
        assert sampler.current().triton_s is None


async def test_a_long_golden_question_arrives_whole() -> None:
    image = "A" * 500_000
    tensor = {"name": "data", "datatype": "BYTES", "shape": [1], "data": [image]}
    golden = {"request": {"inputs": [tensor]}, "checks": []}
    async with answering(says(200, {"triton_model": "m.1", "golden": golden})) as agent:
        placed = await agent.place(identity("m"))
    assert json.loads(bytes(placed.golden.request))["inputs"][0]["data"] == [image]


async def test_an_answer_without_end_is_a_setback() -> None:
    async with answering(says(200, "x" * (ANSWER_BYTES + 1))) as agent:
        with pytest.raises(Setback, match="more than"):
            await agent.status()
