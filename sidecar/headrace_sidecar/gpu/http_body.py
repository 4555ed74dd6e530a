"""Request bodies over HTTP, read whole, within the limits on size and time."""

import asyncio

from aiohttp import web
from aiohttp.http_exceptions import PayloadEncodingError

from headrace import limits
from headrace.oip import http_request
from headrace.oip.tensors import invalid
from headrace.refusals import Refusal, Refused
from headrace_sidecar.gpu.bodies import Hold


def check_size(request: web.BaseRequest) -> None:
    """Refuse a body that is announced to be over the limit."""
    if (request.content_length or 0) > limits.BODY_BYTES:
        raise http_request.too_large()


def check_encoding(request: web.BaseRequest) -> None:
    """Refuse a compressed body: a few bytes of it may stand for gigabytes."""
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise Refused(
            Refusal.ENCODING_NOT_ACCEPTED,
            f"content-encoding {encoding[:32]!r} is not accepted",
            where="content-encoding",
        )


async def read(request: web.BaseRequest, held: Hold) -> bytes:
    """The body, every byte of it held; Refused when it is too large, or comes too slowly."""
    if "Expect" in request.headers:
        # Everything before the body was accepted, so now the caller may send it.
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
    chunk = request.content.read_nowait()
    if len(chunk) == request.content_length:
        held.add(len(chunk))
        return chunk
    try:
        async with asyncio.timeout(limits.UPLOAD_S):
            return await _rest(request, chunk, held)
    except (PayloadEncodingError, web.RequestPayloadError, ConnectionError) as error:
        raise invalid("body", "it ends in the middle, or its chunks are malformed") from error
    except TimeoutError as error:
        raise Refused(
            Refusal.SLOW_SENDER,
            f"the body did not arrive within {limits.UPLOAD_S:g} s",
            where="body",
        ) from error


async def _rest(request: web.BaseRequest, chunk: bytes, held: Hold) -> bytes:
    """The body that begins with a chunk."""
    chunks: list[bytes] = []
    size = 0
    while True:
        size += len(chunk)
        if size > limits.BODY_BYTES:
            raise http_request.too_large()
        held.add(len(chunk))
        chunks.append(chunk)
        chunk = await request.content.readany()
        if not chunk:
            return b"".join(chunks)
