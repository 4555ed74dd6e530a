"""Asks a tritonserver who it is, over its gRPC socket, without generated code.

ServerMetadata takes an empty message and answers name (field 1) and version (field 2) first, both
short strings, so its bytes are read by hand here.
"""

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Final

import grpc.aio

_METHOD: Final = "/inference.GRPCInferenceService/ServerMetadata"
_ATTEMPT_S: Final = 1.0
_POLL_S: Final = 0.02
_VERSION_TAG: Final = 0x12


def parse_version(metadata: bytes) -> str:
    """Version in a ServerMetadataResponse; empty when it has none."""
    at = 0
    while at + 1 < len(metadata):
        tag, length = metadata[at], metadata[at + 1]
        if tag == _VERSION_TAG:
            return metadata[at + 2 : at + 2 + length].decode()
        at += 2 + length
    return ""


async def wait_until_answering(socket: Path) -> str:
    """Version of the tritonserver behind the socket, once it answers; waits as long as needed."""
    while True:
        # Connecting before the socket exists would start gRPC's own back-off of a second.
        if os.path.exists(socket):  # noqa: ASYNC240 - a stat of a local file
            with contextlib.suppress(grpc.aio.AioRpcError):
                return parse_version(await _ask(socket))
        await asyncio.sleep(_POLL_S)


async def _ask(socket: Path) -> bytes:
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        answer: bytes = await channel.unary_unary(_METHOD, None, None)(b"", timeout=_ATTEMPT_S)
        return answer
