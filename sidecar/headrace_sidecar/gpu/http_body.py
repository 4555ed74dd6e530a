"""Request bodies over HTTP, read whole and within the limit."""

from aiohttp import web

from headrace import limits
from headrace.oip import http_request
from headrace.refusals import Refusal, Refused


def announced_bytes(request: web.BaseRequest) -> int:
    """Size to hold room for: what the request announces, else the largest; Refused over it."""
    length = request.content_length
    if length is None:
        return limits.BODY_BYTES if request.body_exists else 0
    if length > limits.BODY_BYTES:
        raise http_request.too_large()
    return length


def check_encoding(request: web.BaseRequest) -> None:
    """Refuse a compressed body: a few bytes of it may stand for gigabytes."""
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise Refused(
            Refusal.ENCODING_NOT_ACCEPTED,
            f"content-encoding {encoding[:32]!r} is not accepted",
            where="content-encoding",
        )


async def read(request: web.BaseRequest) -> bytes:
    """The body; Refused as soon as more than the limit has arrived."""
    if "Expect" in request.headers:
        # Everything before the body was accepted, so now the caller may send it.
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
    chunk = await request.content.readany()
    if len(chunk) == request.content_length:
        return chunk
    chunks: list[bytes] = []
    size = 0
    while chunk:
        size += len(chunk)
        if size > limits.BODY_BYTES:
            raise http_request.too_large()
        chunks.append(chunk)
        chunk = await request.content.readany()
    return b"".join(chunks)
