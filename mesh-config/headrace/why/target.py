"""What is asked for: the model and the pinned version, as in ``model.lua``."""

import re
from typing import Final, NamedTuple

from headrace import headers, limits, routing
from headrace.oip.grpc_outline import named
from headrace.refusals import Refusal, Refused
from headrace.why.request import Request

_NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{limits.MODEL_NAME_LENGTH - 1}}}")
_VERSION: Final = re.compile(r"[1-9][0-9]{0,5}")
_HTTP: Final = re.compile(r"/v2/models/([^/]+)(/.*)?", re.DOTALL)
_HTTP_VERSION: Final = re.compile(r"/versions/([^/]+).*", re.DOTALL)
_HEAD_BYTES: Final = 5


class Target(NamedTuple):
    """Model and version that a request names, and where it names them."""

    model: str
    model_from: str
    pin: int | None = None
    pin_from: str = ""


def target(request: Request) -> Target | None:
    """What the request asks for; None where it names no model. Refused when it cannot be read."""
    if not request.is_grpc:
        return _http(request)
    encoding = request.get("grpc-encoding")
    if encoding not in (None, "identity"):
        raise Refused(Refusal.ENCODING_NOT_ACCEPTED, "the request is compressed")
    service, method = _method(request)
    if not service:
        return None
    if method == routing.STREAM_METHOD:
        model = request.get(headers.MODEL_HINT) or ""
        return _target(request, model, f"the header {headers.MODEL_HINT}", "", "")
    if method not in routing.MODEL_METHODS:
        return None
    names = named(_message(request.body))
    model, version = (name.decode(errors="replace") for name in names)
    return _target(request, model, "field 1 of the message", version, "field 2 of the message")


def _http(request: Request) -> Target | None:
    found = _HTTP.fullmatch(request.plain_path)
    if found is None:
        return None
    version = _HTTP_VERSION.fullmatch(found[2] or "")
    return _target(request, found[1], "the path", version[1] if version else "", "the path")


def _method(request: Request) -> tuple[bool, str]:
    path = request.plain_path
    return path.startswith(routing.SERVICE), path.removeprefix(routing.SERVICE)


def _message(body: bytes) -> bytes:
    """The one message of a body; Refused where it is not one."""
    if len(body) >= _HEAD_BYTES and body[0] != 0:
        raise Refused(Refusal.ENCODING_NOT_ACCEPTED, "the message is compressed")
    if len(body) < _HEAD_BYTES or int.from_bytes(body[1:5], "big") != len(body) - _HEAD_BYTES:
        raise Refused(Refusal.INVALID_VALUE, "the request is not one well-formed message")
    return body[_HEAD_BYTES:]


def _target(
    request: Request, model: str, model_from: str, version: str, version_from: str
) -> Target:
    if not version:
        version = request.get(headers.VERSION_HINT) or ""
        version_from = f"the header {headers.VERSION_HINT}"
    if not _NAME.fullmatch(model):
        raise _unknown(f"{model_from} names no model" + (f": {model[:64]!r}" if model else ""))
    if not version:
        return Target(model, model_from)
    if not _VERSION.fullmatch(version):
        raise _unknown(f"{version_from} names no version: {version[:16]!r}")
    return Target(model, model_from, int(version), version_from)


def _unknown(message: str) -> Refused:
    return Refused(Refusal.MODEL_NOT_FOUND, message)
