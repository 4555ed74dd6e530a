"""Large bodies are converted as small ones are, elsewhere, and within bounds."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tritonclient.grpc import service_pb2 as pb

from headrace import limits
from headrace.oip import http_request
from headrace.oip.http_response import Result
from headrace.refusals import Refusal, Refused
from headrace_sidecar.gpu import conversion
from headrace_sidecar.gpu.converters import Converters
from tests.fakes.front_door import assigned

NUMBERS = assigned("numbers", {"data": ("FP32", (-1,))})
WORDS = assigned("words", {"data": ("BYTES", (-1,))})
WORD = assigned("word", {"data": ("BYTES", (1,))}, max_batch_size=8)


def body(count: int, **more: Any) -> bytes:
    values = [number / 4 for number in range(count)]
    data = {"name": "data", "datatype": "FP32", "shape": [count], "data": values}
    return json.dumps({"id": "i", "inputs": [data], **more}).encode()


LARGE = body(20_000)
BRACKETS = body(1, unknown=[[]] * 400_000)


@pytest.fixture
async def converters() -> AsyncIterator[Converters]:
    converters = Converters(processes=1)
    yield converters
    converters.close()


def test_large_is_what_holds_the_interpreter_for_long() -> None:
    inline = limits.INLINE_BYTES
    assert not conversion.weighs(inline, inline, WORDS)
    assert conversion.weighs(inline + 1, inline + 1, NUMBERS)
    assert not conversion.weighs(100, 10**7, NUMBERS), "plain tensors are not looked at"
    assert not conversion.weighs(100, 10**7, WORD), "few strings are soon checked"
    assert conversion.weighs(100, 10**7, WORDS)
    fixed = assigned("fixed", {"data": ("BYTES", (limits.INLINE_STRINGS,))})
    assert not conversion.weighs(100, 10**7, fixed)
    more = assigned("more", {"data": ("BYTES", (limits.INLINE_STRINGS + 1,))})
    assert conversion.weighs(100, 10**7, more)


async def test_a_large_body_is_read_as_a_small_one_is(converters: Converters) -> None:
    found = await converters.parse(LARGE, None, NUMBERS)
    assert found == http_request.parse(LARGE, None, NUMBERS)
    small = body(3)
    assert await converters.parse(small, None, NUMBERS) == http_request.parse(small, None, NUMBERS)


async def test_a_refusal_comes_back_as_it_was(converters: Converters) -> None:
    with pytest.raises(Refused) as caught:
        await converters.parse(LARGE.replace(b" 0.25,", b" true,"), None, NUMBERS)
    refused = caught.value
    assert (refused.refusal, refused.where) == (Refusal.INVALID_VALUE, "$.inputs[0].data")
    assert not refused.sick


async def test_a_large_answer_is_written_as_a_small_one_is(converters: Converters) -> None:
    asked = await converters.parse(LARGE, None, NUMBERS)
    raw = bytes(asked.inputs[0].data)
    results = [Result("data", "FP32", [20_000], raw)]
    written, header_bytes = await converters.render(asked, results, {"p": 1}, NUMBERS)
    assert header_bytes is None
    answer = json.loads(written)
    assert (answer["id"], answer["parameters"]) == ("i", {"p": 1})
    assert answer["outputs"][0]["data"][:3] == [0.0, 0.25, 0.5]


async def test_a_large_grpc_message_is_checked(converters: Converters) -> None:
    request = pb.ModelInferRequest(model_name="words")
    request.inputs.add(name="data", datatype="BYTES", shape=[2])
    request.inputs[0].contents.bytes_contents.extend([b"x" * limits.INLINE_BYTES] * 2)
    await converters.check(request.SerializeToString(), WORDS, stream=False)
    request.inputs[0].shape[0] = 3
    for wrong in (request.SerializeToString(), b"\xff" * 100):
        with pytest.raises(Refused) as caught:
            await converters.check(wrong, WORDS, stream=False)
        assert caught.value.refusal is Refusal.INVALID_VALUE


async def test_the_loop_goes_on_while_a_large_body_is_read(converters: Converters) -> None:
    await converters.parse(LARGE, None, NUMBERS)
    reading = asyncio.create_task(converters.parse(BRACKETS, None, NUMBERS))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0.001)
        turns += 1
    await reading
    assert turns > 10


async def test_what_waits_beyond_conversions_waiting_is_refused() -> None:
    assert Converters()._most == limits.CONVERTERS + limits.CONVERSIONS_WAITING
    converters = Converters(processes=1, waiting=1)
    try:
        inside = [asyncio.create_task(converters.parse(BRACKETS, None, NUMBERS)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Refused) as caught:
            await converters.parse(LARGE, None, NUMBERS)
        assert caught.value.refusal is Refusal.OVERLOADED
        assert await asyncio.gather(*inside)
        await converters.parse(LARGE, None, NUMBERS)
    finally:
        converters.close()


async def test_past_conversion_s_a_body_is_refused() -> None:
    assert limits.CONVERSION_S > 1
    converters = Converters(processes=1, timeout_s=0.01)
    try:
        with pytest.raises(Refused) as caught:
            await converters.parse(BRACKETS, None, NUMBERS)
        assert (caught.value.refusal, caught.value.sick) == (Refusal.TIMEOUT, False)
    finally:
        converters.close()


async def test_past_converter_bytes_a_body_is_refused() -> None:
    needed = 2**26
    assert needed < limits.CONVERTER_BYTES
    converters = Converters(processes=1, memory_bytes=needed)
    try:
        with pytest.raises(Refused) as caught:
            await converters.parse(BRACKETS * 8, None, NUMBERS)
        assert (caught.value.refusal, caught.value.sick) == (Refusal.REQUEST_TOO_LARGE, False)
        assert await converters.parse(LARGE, None, NUMBERS)
    finally:
        converters.close()


async def test_a_process_that_dies_costs_its_body_only(converters: Converters) -> None:
    await converters.parse(LARGE, None, NUMBERS)
    pid = converters._idle[0]._process.pid
    reading = asyncio.create_task(converters.parse(BRACKETS, None, NUMBERS))
    await asyncio.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(Refused) as caught:
        await reading
    assert (caught.value.refusal, caught.value.sick) == (Refusal.INTERNAL, False)
    assert await converters.parse(LARGE, None, NUMBERS)


async def test_closing_ends_every_process(converters: Converters) -> None:
    await converters.parse(LARGE, None, NUMBERS)
    process = converters._idle[0]._process
    converters.close()
    assert process.returncode is not None
