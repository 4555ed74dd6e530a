"""Calls of the gRPC front door as tests make them, well-formed and not."""

import asyncio
import struct
import time
from collections.abc import Callable
from typing import Any

import grpc.aio
import pytest
from tritonclient.grpc import service_pb2 as pb

from tests.fakes import lab_models
from tests.fakes.front_door import FrontDoor, front_door
from tests.fakes.triton_process import TritonProcess

SERVICE = "/inference.GRPCInferenceService/"


def ask(
    values: list[int], *, model: str = "echo-int32", request_id: str = "", raw: bool = True
) -> Any:
    """A request for a tensor of INT32."""
    request = pb.ModelInferRequest(model_name=model, id=request_id)
    request.inputs.add(name="data", datatype="INT32", shape=[len(values)])
    if raw:
        request.raw_input_contents.append(struct.pack(f"<{len(values)}i", *values))
    else:
        request.inputs[0].contents.int_contents.extend(values)
    return request


async def call(door: FrontDoor, method: str, request: Any, **options: Any) -> Any:
    """The answer to a unary call."""
    answer = getattr(pb, f"{method}Response")
    unary = door.channel.unary_unary(
        SERVICE + method, lambda message: message.SerializeToString(), answer.FromString
    )
    return await unary(request, timeout=10, **options)


async def refusal_of(door: FrontDoor, request: Any, **options: Any) -> tuple[Any, dict[str, Any]]:
    """Status and marks of an inference that is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(door, "ModelInfer", request, **options)
    return caught.value.code(), marks_of(caught.value)


def marks_of(error: grpc.aio.AioRpcError) -> dict[str, Any]:
    """Trailing metadata of a call that failed."""
    trailers: Any = error.trailing_metadata()
    return dict(trailers)


def open_stream(door: FrontDoor, **options: Any) -> Any:
    """A ModelStreamInfer call."""
    return door.channel.stream_stream(
        f"{SERVICE}ModelStreamInfer",
        lambda message: message.SerializeToString(),
        pb.ModelStreamInferResponse.FromString,
    )(**options)


async def rest(stream: Any) -> list[Any]:
    """Every answer that is left in a stream."""
    answers = []
    while (answer := await stream.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
        answers.append(answer)
    return answers


async def until(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def mixed() -> Any:
    """Raw and typed contents."""
    request = ask([1])
    request.inputs[0].contents.int_contents.append(1)
    return request


def shape(size: int) -> Any:
    """A shape that its data does not fill."""
    request = ask([1])
    request.inputs[0].shape[0] = size
    return request


def no_data() -> Any:
    """A shape that wraps around, and no data."""
    request = shape(2**62)
    del request.raw_input_contents[:]
    request.raw_input_contents.append(b"")
    return request


def parameter(name: str) -> Any:
    """A parameter of some name."""
    request = ask([1])
    request.parameters[name].int64_param = 1
    return request


def version(text: str) -> Any:
    """A version of some name."""
    request = ask([1])
    request.model_version = text
    return request


async def frames_of_refused_call(door: FrontDoor) -> list[tuple[int, int]]:
    """Kinds and flags of the HTTP/2 frames of an answer, up to its first headers."""
    host, _, port = door.grpc_target.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": f"{SERVICE}ModelInfer",
        ":authority": "x",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    block = b"".join(
        b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in fields.items()
    )
    message = ask([1], model="none").SerializeToString()
    data = b"\x00" + struct.pack(">I", len(message)) + message
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, b""))
    writer.write(_frame(1, 4, 1, block) + _frame(0, 1, 1, data))
    frames: list[tuple[int, int]] = []
    while not any(kind == 1 for kind, _ in frames):
        head = await reader.readexactly(9)
        await reader.readexactly(int.from_bytes(head[:3], "big"))
        frames.append((head[3], head[4]))
    writer.close()
    await writer.wait_closed()
    return frames


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return (
        len(payload).to_bytes(3, "big") + bytes([kind, flags]) + struct.pack(">I", stream) + payload
    )


async def until_idle(triton: TritonProcess) -> None:
    """Wait until what was cancelled has left the slow model's queue, so that it is free again."""
    async with front_door(triton.target, [lab_models.SLOW]) as door:
        await call(door, "ModelInfer", ask([1], model="slow"))
