"""Paths of the Open Inference Protocol over HTTP: what each asks for, of which model version."""

import functools
from typing import Final, Literal, NamedTuple
from urllib.parse import unquote

from headrace.oip import identifiers
from headrace.refusals import Refusal, Refused

Ask = Literal["server", "live", "server-ready", "metadata", "ready", "config", "stats", "infer"]

_PATHS: Final = 1_024


class Target(NamedTuple):
    """What a path asks for; ``version`` is None where the path has none."""

    ask: Ask
    model: str = ""
    version: int | None = None

    @property
    def methods(self) -> tuple[str, ...]:
        """Methods that may be used on it."""
        return ("POST",) if self.ask == "infer" else ("GET", "HEAD")


_FIXED: Final[dict[str, Target]] = {
    "/v2": Target("server"),
    "/v2/health/live": Target("live"),
    "/v2/health/ready": Target("server-ready"),
}
_MODELS: Final = "/v2/models/"
_ENDS: Final[dict[str, Ask]] = {
    "ready": "ready",
    "config": "config",
    "stats": "stats",
    "infer": "infer",
}


@functools.lru_cache(maxsize=_PATHS)
def parse(path: str) -> Target:
    """What a raw path, without its query, asks for; Refused when it is none of the protocol."""
    fixed = _FIXED.get(path)
    if fixed is not None:
        return fixed
    if not path.startswith(_MODELS):
        raise _unknown()
    model, *rest = path[len(_MODELS) :].split("/")
    name = identifiers.check_model(unquote(model), "path")
    version: int | None = None
    if rest[:1] == ["versions"]:
        if len(rest) < 2 or not rest[1]:
            raise _unknown()
        version = identifiers.parse_version(rest[1], "path")
        rest = rest[2:]
    if not rest:
        return Target("metadata", name, version)
    if len(rest) != 1 or rest[0] not in _ENDS:
        raise _unknown()
    return Target(_ENDS[rest[0]], name, version)


def _unknown() -> Refused:
    return Refused(Refusal.NOT_FOUND, "no such path in the Open Inference Protocol", where="path")
