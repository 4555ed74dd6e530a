"""Well-formed requests get from the front door what Triton itself would answer."""

import json
import struct
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import aiohttp
import pytest

from tests.fakes import lab_models
from tests.fakes.front_door import FrontDoor, Reply, front_door, send
from tests.fakes.triton_process import TritonProcess

pytestmark = pytest.mark.e2e

PLAIN = {"accept-encoding": "identity"}
HEADER = "inference-header-content-length"
VALUES: dict[str, list[Any]] = {
    "BOOL": [True, False, True],
    "UINT8": [0, 7, 255],
    "INT8": [-128, 0, 127],
    "INT32": [-(2**31), 0, 2**31 - 1],
    "INT64": [-(2**63), 0, 2**63 - 1],
    "FP32": [0.5, -2.25, 1e30],
    "FP64": [0.1, -2.25, 1e300],
    "BYTES": ["", "text", "gr\u00fc\u00df"],
}
CODES = {"BOOL": "?", "UINT8": "B", "INT8": "b", "INT32": "i", "INT64": "q"} | {
    "FP16": "e", "FP32": "f", "FP64": "d",
}  # fmt: skip


class Both(NamedTuple):
    """Triton's own HTTP port and the front door before it."""

    door: FrontDoor
    direct: aiohttp.ClientSession

    async def send(self, method: str, path: str, **options: Any) -> tuple[Reply, Reply]:
        """The same request to the front door and, by Triton's name of the model, to Triton."""
        head, models, rest = path.partition("/v2/models/")
        model, slash, end = rest.partition("/")
        theirs = f"{head}{models}{model}.1{slash}{end}" if rest else path
        return (
            await self.door.send(method, path, **options),
            await send(self.direct, method, f"http://triton{theirs}", **options),
        )

    async def infer(self, model: str, body: Any, **options: Any) -> tuple[Reply, Reply]:
        """The same inference on both sides; a body that is no bytes is sent as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.send("POST", f"/v2/models/{model}/infer", data=data, **options)


@pytest.fixture
async def both(triton: TritonProcess) -> AsyncIterator[Both]:
    connector = aiohttp.UnixConnector(f"{triton.folder}/h.sock")
    async with (
        front_door(triton.target, lab_models.ALL) as door,
        aiohttp.ClientSession(connector=connector, headers=PLAIN) as direct,
    ):
        yield Both(door, direct)


def raw(datatype: str, values: list[Any]) -> bytes:
    if datatype == "BYTES":
        parts = [value.encode() for value in values]
        return b"".join(struct.pack("<I", len(part)) + part for part in parts)
    return struct.pack(f"<{len(values)}{CODES[datatype]}", *values)


def request(datatype: str, values: list[Any], **more: Any) -> dict[str, Any]:
    data = {"name": "data", "shape": [len(values)], "datatype": datatype, "data": values}
    return {"inputs": [data], **more}


def with_binary(head: dict[str, Any], tail: bytes) -> tuple[bytes, dict[str, str]]:
    encoded = json.dumps(head).encode()
    return encoded + tail, {HEADER: str(len(encoded))}


def meaning(reply: Reply) -> Any:
    """An answer as values, less the name that only one side knows the model by."""
    size = int(reply.headers.get(HEADER, len(reply.body)))
    value = json.loads(reply.body[:size])
    for name in ("model_name", "model_version"):
        assert value.pop(name)
    return reply.status, value, reply.body[size:]


def same(replies: tuple[Reply, Reply]) -> Any:
    ours, theirs = replies
    assert ours.status == theirs.status == 200, replies
    assert meaning(ours) == meaning(theirs)
    return meaning(ours)


@pytest.mark.parametrize("datatype", VALUES)
@pytest.mark.parametrize(
    ("binary_in", "binary_out"), [(False, False), (False, True), (True, False), (True, True)]
)
async def test_each_datatype_echoes_as_triton_echoes_it(
    both: Both, datatype: str, binary_in: bool, binary_out: bool
) -> None:
    body = request(datatype, VALUES[datatype], outputs=[{"name": "data"}])
    body["outputs"][0]["parameters"] = {"binary_data": binary_out}
    headers: dict[str, str] = {}
    data: Any = body
    if binary_in:
        tail = raw(datatype, body["inputs"][0].pop("data"))
        body["inputs"][0]["parameters"] = {"binary_data_size": len(tail)}
        data, headers = with_binary(body, tail)
    same(await both.infer(f"echo-{datatype.lower()}", data, headers=headers))


async def test_half_floats_travel_as_binary_only(both: Both) -> None:
    body = request("FP16", [0.5, 1.5])
    ours, theirs = await both.infer("echo-fp16", body)
    assert (ours.status, theirs.status) == (400, 400)
    tail = raw("FP16", body["inputs"][0].pop("data"))
    body["inputs"][0]["parameters"] = {"binary_data_size": len(tail)}
    body["parameters"] = {"binary_data_output": True}
    data, headers = with_binary(body, tail)
    same(await both.infer("echo-fp16", data, headers=headers))


@pytest.mark.parametrize("datatype", ["INT32", "FP32", "BYTES"])
async def test_an_empty_tensor_echoes(both: Both, datatype: str) -> None:
    same(await both.infer(f"echo-{datatype.lower()}", request(datatype, [])))


async def test_nested_data_is_flattened(both: Both) -> None:
    inputs = [
        {"name": "a", "shape": [2, 2], "datatype": "FP32", "data": [[1, 2], [3, 4.5]]},
        {"name": "b", "shape": [2, 3], "datatype": "INT32", "data": [[1, 2, 3], [4, 5, 6]]},
    ]
    same(await both.infer("pair", {"inputs": inputs}))


@pytest.mark.parametrize("outputs", [None, [], ["b"], ["b", "a"]])
async def test_outputs_asked_for_are_returned_in_the_same_order(
    both: Both, outputs: list[str] | None
) -> None:
    inputs = [
        {"name": "b", "shape": [1, 1], "datatype": "INT32", "data": [4]},
        {"name": "a", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]},
    ]
    body: dict[str, Any] = {"inputs": inputs, "id": "seven"}
    if outputs is not None:
        body["outputs"] = [{"name": name} for name in outputs]
    _, value, _ = same(await both.infer("pair", body))
    assert value["id"] == "seven"


async def test_parameters_of_every_scalar_type_are_accepted(both: Both) -> None:
    parameters = {"i": -3, "f": 0.5, "s": "text", "b": True}
    same(await both.infer("echo-int32", request("INT32", [1], parameters=parameters)))


@pytest.mark.parametrize("model", ["echo-uint8", "echo-fp32", "line", "word"])
async def test_a_raw_body_is_the_one_input(both: Both, model: str) -> None:
    same(await both.infer(model, b"\x00\x01\x02\x03", headers={HEADER: "0"}))


async def test_a_raw_body_must_be_the_only_string(both: Both) -> None:
    ours, theirs = await both.infer("echo-bytes", b"text", headers={HEADER: "0"})
    assert (ours.status, theirs.status) == (400, 400)


async def test_a_chunked_body_is_read_whole(both: Both) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        encoded = json.dumps(request("INT32", [1, 2, 3])).encode()
        for position in range(0, len(encoded), 7):
            yield encoded[position : position + 7]

    for session, url in (
        (both.door.session, f"{both.door.url}/v2/models/echo-int32/infer"),
        (both.direct, "http://triton/v2/models/echo-int32.1/infer"),
    ):
        assert (await send(session, "POST", url, data=chunks())).status == 200


def one(name: str, datatype: str, shape: list[int]) -> dict[str, Any]:
    return {"inputs": [{"name": name, "datatype": datatype, "shape": shape, "data": [1]}]}


WRONG: dict[str, dict[str, Any]] = {
    "unknown output": {"outputs": [{"name": "nope"}]},
    "wrong datatype": one("data", "INT64", [1]),
    "wrong rank": one("data", "INT32", [1, 1]),
    "unknown input": one("x", "INT32", [1]),
    "missing input": {"inputs": []},
    "shape and data differ": one("data", "INT32", [2]),
    "negative dimension": one("data", "INT32", [-1]),
    "array as parameter": {"parameters": {"x": [1]}},
    "reserved parameter": {"parameters": {"triton_x": 1}},
    "id is a number": {"id": 7},
}


@pytest.mark.parametrize("case", WRONG)
async def test_what_triton_refuses_the_front_door_refuses_as_the_callers_fault(
    both: Both, case: str
) -> None:
    ours, theirs = await both.infer("echo-int32", {**request("INT32", [1]), **WRONG[case]})
    assert theirs.status in (400, 500)
    assert ours.status == 400, ours


@pytest.mark.parametrize("shape", [[5, 2], [0, 2], [1, 3], [2]])
async def test_a_batch_that_triton_refuses_is_refused(both: Both, shape: list[int]) -> None:
    size = 1
    for dimension in shape:
        size *= dimension
    inputs = [
        {"name": "a", "shape": shape, "datatype": "FP32", "data": [1] * size},
        {"name": "b", "shape": [shape[0], 1], "datatype": "INT32", "data": [1] * shape[0]},
    ]
    ours, theirs = await both.infer("pair", {"inputs": inputs})
    assert (ours.status, theirs.status) == (400, 400), theirs


@pytest.mark.parametrize(
    ("method", "path", "ours", "theirs"),
    [
        ("GET", "/v2", 200, 200),
        ("GET", "/v2/", 404, 404),
        ("GET", "/v2/health/live", 200, 200),
        ("GET", "/v2/health/ready", 200, 200),
        ("GET", "/v2/models/pair", 200, 200),
        ("GET", "/v2/models/pair/versions/1", 200, 200),
        ("GET", "/v2/models/pair/versions/2", 404, 404),
        ("GET", "/v2/models/pair/", 404, 404),
        ("GET", "/v2/models/pair/ready", 200, 200),
        ("GET", "/v2/models/pair/versions/1/ready", 200, 200),
        ("GET", "/v2/models/none", 404, 404),
        # Triton calls a model not ready that it does not know.
        ("GET", "/v2/models/none/ready", 404, 400),
        ("GET", "/v2/models/pair/config", 200, 200),
        ("GET", "/v2/models/pair/stats", 200, 200),
        ("GET", "/v2/models/pair/infer", 405, 405),
        ("POST", "/v2/models/pair", 405, 405),
        ("POST", "/v2/health/live", 405, 405),
        ("GET", "/v2/models", 404, 404),
        ("GET", "/", 404, 404),
    ],
)
async def test_paths_and_methods_answer_as_triton(
    both: Both, method: str, path: str, ours: int, theirs: int
) -> None:
    replies = await both.send(method, path)
    assert tuple(reply.status for reply in replies) == (ours, theirs)


async def test_metadata_is_what_triton_reads_from_the_model(both: Both) -> None:
    ours, theirs = (json.loads(r.body) for r in await both.send("GET", "/v2/models/pair"))
    assert ours.pop("name") == "pair"
    assert theirs.pop("name") == "pair.1"
    assert ours == theirs


async def test_configuration_is_tritons_under_the_callers_name(both: Both) -> None:
    ours, theirs = (json.loads(r.body) for r in await both.send("GET", "/v2/models/pair/config"))
    assert ours["name"] == "pair"
    assert {name: ours[name] for name in ("backend", "max_batch_size", "input", "output")} == {
        name: theirs[name] for name in ("backend", "max_batch_size", "input", "output")
    }


async def test_statistics_rise_by_what_was_sent(both: Both) -> None:
    async def count() -> int:
        reply = await both.door.send("GET", "/v2/models/echo-int32/versions/1/stats")
        (stats,) = json.loads(reply.body)["model_stats"]
        assert (stats["name"], stats["version"]) == ("echo-int32", "1")
        number: int = stats["inference_stats"]["success"]["count"]
        return number

    before = await count()
    for _ in range(3):
        body = request("INT32", [1])
        await both.door.send("POST", "/v2/models/echo-int32/infer", json=body)
    assert await count() == before + 3
