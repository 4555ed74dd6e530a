"""The request that is asked about, and what Envoy makes of it before any filter sees it."""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from headrace import headers, routing
from headrace.refusals import Refusal, Refused
from headrace.routing import Kind

GRPC: Final = "application/grpc"
_HOP_BY_HOP: Final = ("connection", "keep-alive", "proxy-connection", "transfer-encoding", "host")
_ESCAPED_SLASH: Final = re.compile(r"%2f|%5c", re.IGNORECASE)
_DOT: Final = re.compile(r"%2e", re.IGNORECASE)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request as a caller sends it; ``of`` makes one from loose parts."""

    method: str = "POST"
    path: str
    """With its query."""
    host: str = "localhost"
    headers: tuple[tuple[str, str], ...] = ()
    """Names in lower case."""
    body: bytes = b""
    """As it is on the wire: a gRPC message with its five bytes in front."""
    body_bytes: int | None = None
    """Its length, where the body itself is not at hand."""

    @classmethod
    def of(
        cls,
        path: str,
        *,
        method: str = "POST",
        host: str = "localhost",
        given: Iterable[tuple[str, str]] = (),
        body: bytes = b"",
    ) -> "Request":
        """Request with its headers as Envoy reads them: names in lower case, no outer blanks."""
        read = tuple((name.strip().lower(), value.strip(" \t")) for name, value in given)
        hosts = [value for name, value in read if name in ("host", ":authority")]
        kept = tuple(pair for pair in read if pair[0] not in ("host", ":authority"))
        authority = ",".join(hosts) if hosts else host
        return cls(method=method.upper(), path=path, host=authority, headers=kept, body=body)

    @classmethod
    def call(
        cls,
        method: str,
        message: bytes,
        *,
        host: str = "localhost",
        given: Iterable[tuple[str, str]] = (),
    ) -> "Request":
        """A gRPC call of the inference service, or of the service that the method names."""
        path = method if method.startswith("/") else f"{routing.SERVICE}{method}"
        return cls.of(path, host=host, given=(("content-type", GRPC), *given), body=frame(message))

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return len(self.body) if self.body_bytes is None else self.body_bytes

    @property
    def plain_path(self) -> str:
        """Path without its query."""
        return self.path.partition("?")[0]

    @property
    def is_grpc(self) -> bool:
        """Whether the mesh's filters take it for gRPC, and answer it so."""
        return (self.get("content-type") or "").startswith(GRPC)

    @property
    def is_call(self) -> bool:
        """Whether Envoy's routes take it for gRPC, which of gRPC-Web they do not."""
        kind = self.get("content-type") or ""
        return kind == GRPC or kind.startswith(f"{GRPC}+")

    @property
    def kind(self) -> Kind:
        """Kind of route that it needs."""
        if not self.is_grpc:
            return "http"
        return "stream" if self.plain_path == routing.STREAM_PATH else "grpc"

    def values(self, name: str) -> list[str]:
        """Values of a header, one for each time it is given."""
        return [value for each, value in self.headers if each == name]

    def get(self, name: str) -> str | None:
        """Values of a header as one; None when it is absent."""
        found = self.values(name)
        return ",".join(found) if found else None

    def with_headers(self, *given: tuple[str, str]) -> "Request":
        """The request with some headers replaced."""
        kept = self.without(*(name for name, _ in given)).headers
        return msgspec.structs.replace(self, headers=(*kept, *given))

    def without(self, *names: str) -> "Request":
        """The request without some headers."""
        kept = tuple(pair for pair in self.headers if pair[0] not in names)
        return msgspec.structs.replace(self, headers=kept)


def frame(message: bytes) -> bytes:
    """A gRPC message as it is on the wire, uncompressed."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def arrived(request: Request) -> Request:
    """The request as filters see it; Refused where Envoy takes it for malformed."""
    for name, _ in request.headers:
        if "_" in name:
            raise _malformed(f"the header {name} has an underscore")
    path = normalized(request.path)
    tokens = (request.get("connection") or "").lower().replace(" ", "").split(",")
    # Without its token in the header connection, an upgrade means nothing and is dropped.
    upgrade = () if "upgrade" in tokens else ("upgrade",)
    dropped = (*headers.STRIPPED, headers.SCOPE, *_HOP_BY_HOP, *upgrade)
    return msgspec.structs.replace(request, path=path).without(*dropped)


def normalized(target: str) -> str:
    """Path without dots and doubled slashes; Refused where it hides a slash."""
    path, mark, query = target.partition("?")
    if not path.startswith("/"):
        raise _malformed("the path does not begin with a slash")
    if "#" in target:
        raise _malformed("the path has a fragment")
    if _ESCAPED_SLASH.search(path):
        raise _malformed("the path has an escaped slash")
    return _without_dots(_DOT.sub(".", path.replace("\\", "/"))) + mark + query


def _without_dots(path: str) -> str:
    segments = path.split("/")[1:]
    kept: list[str] = []
    for segment in segments:
        if segment == "..":
            kept = kept[:-1]
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in (".", ".."):
        kept.append("")
    return re.sub(r"/{2,}", "/", "/" + "/".join(kept))


def _malformed(message: str) -> Refused:
    return Refused(Refusal.INVALID_VALUE, message)
