"""The request that ``headrace why`` is asked about, given as ``curl`` or ``grpcurl`` take it."""

import argparse
import sys
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from headrace import headers, ir, routing
from headrace.why.request import Request
from headrace_xds.cli.console import CommandError, Exit

STDIN = "-"


class Asked(NamedTuple):
    """A request, and the host and port of its URL; the gateway's where it has none."""

    request: Request
    authority: str

    def request_at(self, gateway: ir.Gateway | None) -> Request:
        """The request as it is sent to a gateway."""
        if self.request.host or gateway is None:
            return self.request
        return msgspec.structs.replace(self.request, host=authority_of(gateway))


def authority_of(gateway: ir.Gateway) -> str:
    """Host and port of a gateway, as a URL has them."""
    host = f"[{gateway.address}]" if ":" in gateway.address else gateway.address
    return f"{host}:{gateway.port}"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Flags that make a request."""
    parser.add_argument("url", nargs="?", metavar="URL_OR_PATH", help="such as /v2/models/x/infer")
    parser.add_argument("-X", "--request", metavar="METHOD", help="default: POST with -d, else GET")
    parser.add_argument(
        "-H", "--header", action="append", default=[], metavar="'NAME: VALUE'", help="repeatable"
    )
    parser.add_argument("-d", "--data", metavar="TEXT|@FILE", help="body; @- is standard input")
    parser.add_argument("--body-bytes", type=int, metavar="N", help="length of a body not at hand")
    parser.add_argument("--grpc", metavar="METHOD", help="a gRPC call, such as ModelInfer")
    parser.add_argument("--model", metavar="NAME", help="with --grpc, the model that it names")
    parser.add_argument("--version", metavar="N", help="with --grpc, the version that it pins")


def read(flags: argparse.Namespace) -> Asked:
    """The request of the flags; CommandError for flags that make none."""
    given = [_header(text) for text in flags.header]
    authority, path = _target(flags.url)
    if flags.grpc is not None:
        request = _call(flags, authority, given)
    elif flags.url is None:
        raise _usage("name a URL or a path, or a gRPC method with --grpc")
    else:
        body = _data(flags.data)
        method = flags.request or ("GET" if flags.data is None else "POST")
        request = Request.of(path, method=method, host=authority, given=given, body=body)
    if flags.body_bytes is not None:
        request = msgspec.structs.replace(request, body_bytes=max(flags.body_bytes, 0))
    return Asked(request, authority)


def _target(url: str | None) -> tuple[str, str]:
    """Host with its port, and path with its query."""
    if url is None or "://" not in url:
        return "", url or "/"
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise _usage(f"not a URL: {url!r}: {error}") from None
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return parts.netloc.rpartition("@")[2], path


def _call(flags: argparse.Namespace, authority: str, given: list[tuple[str, str]]) -> Request:
    """A call whose message names model and version in front of the given data."""
    method = flags.grpc.removeprefix(routing.SERVICE)
    if method == routing.STREAM_METHOD:
        hints = ((headers.MODEL_HINT, flags.model), (headers.VERSION_HINT, flags.version))
        given = [*given, *((name, value) for name, value in hints if value)]
        return Request.call(method, _data(flags.data), host=authority, given=given)
    named = _field(1, flags.model) + _field(2, flags.version)
    return Request.call(method, named + _data(flags.data), host=authority, given=given)


def _field(number: int, text: str | None) -> bytes:
    """A protobuf field of text; nothing where it is not given."""
    if not text:
        return b""
    value = text.encode(errors="replace")
    return bytes([number << 3 | 2]) + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise _usage(f"not a header: {text!r}; write it like 'x-api-key: demo'")
    return name, value


def _data(text: str | None) -> bytes:
    if text is None:
        return b""
    if not text.startswith("@"):
        return text.encode(errors="surrogateescape")
    if text[1:] == STDIN:
        return sys.stdin.buffer.read()
    try:
        return Path(text[1:]).read_bytes()
    except OSError as error:
        raise _usage(f"cannot read {text[1:]}: {error.strerror}") from None


def _usage(what: str) -> CommandError:
    return CommandError(what, remedy="see headrace why --help", status=Exit.USAGE)
