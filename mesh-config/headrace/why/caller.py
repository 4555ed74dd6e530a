"""Who calls: the key of a request becomes a tenant, as in ``authenticate.lua``."""

import hashlib
import re
from collections.abc import Sequence
from typing import Final

from headrace import headers, ir, limits, routing
from headrace.refusals import Refusal, Refused
from headrace.why.request import Request

AUTHORIZATION: Final = "authorization"
_BEARER: Final = re.compile(r"([A-Za-z]+) +([^ ,]+)")
_OPEN_PATHS: Final = (
    re.compile(r"/v2/health/(live|ready)"),
    re.compile(r"/v2/models/[^/]+/ready"),
    re.compile(r"/v2/models/[^/]+/versions/[0-9]+/ready"),
)


def check(request: Request) -> None:
    """Refuse what no caller may send, whoever it is."""
    if request.get("upgrade") is not None:
        raise Refused(Refusal.NOT_FOUND, "no connection is upgraded here")
    if request.is_grpc and request.method != "POST":
        raise Refused(Refusal.METHOD_NOT_ALLOWED, "a gRPC call is a POST")
    if not request.host or "," in request.host:
        raise Refused(Refusal.INVALID_VALUE, "the request names no host, or two")


def is_open(request: Request) -> bool:
    """Whether a request needs no key."""
    path = request.plain_path
    if request.is_grpc:
        return path in routing.OPEN_CALLS
    if request.method not in ("GET", "HEAD"):
        return False
    return any(pattern.fullmatch(path) for pattern in _OPEN_PATHS)


def identify(request: Request, tenants: Sequence[ir.Tenant]) -> tuple[ir.Tenant, str]:
    """Tenant whose key the request carries, and the key's hash; Refused when it is nobody's."""
    key = _key(request).encode(errors="replace")
    if len(key) > limits.API_KEY_LENGTH:
        raise _invalid(f"the key is longer than {limits.API_KEY_LENGTH} bytes")
    hashed = hashlib.sha256(key).hexdigest()
    for tenant in tenants:
        if hashed in tenant.key_hashes:
            return tenant, hashed
    raise _invalid(f"no tenant has a key with the SHA-256 {hashed}")


def _key(request: Request) -> str:
    plain, bearer = request.values(headers.API_KEY), request.values(AUTHORIZATION)
    if not plain and not bearer:
        raise _invalid(f"the request has neither {headers.API_KEY} nor {AUTHORIZATION}")
    if len(plain) + len(bearer) != 1:
        raise _invalid("the request carries more than one key")
    if plain:
        if not plain[0]:
            raise _invalid("the key is empty")
        return plain[0]
    found = _BEARER.fullmatch(bearer[0])
    if found is None or found[1].lower() != "bearer":
        raise _invalid(f"{AUTHORIZATION} is not of the form: Bearer KEY")
    return found[2]


def _invalid(message: str) -> Refused:
    return Refused(Refusal.INVALID_API_KEY, message)
