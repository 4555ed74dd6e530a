"""``Agent``: client of the model server beside this sidecar, HTTP over its Unix socket."""

from types import TracebackType
from typing import Final, Self, TypeVar

import aiohttp
import msgspec

from headrace import limits
from headrace.assignment import Assignment
from headrace_sidecar.gpu.reading import read_whole
from headrace_sidecar.gpu.setback import Setback

ASK_S: Final = 5.0
"""Time a call that only asks may take."""
PLACE_S: Final = limits.CONVERT_S + 60.0
"""Time a placement may take: weights may have to be converted first."""
ANSWER_BYTES: Final = 4 * 2**20
"""Largest answer that is read."""

_BASE: Final = "http://agent"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """What one element of a golden answer must be: ``equals``, or ``near`` within ``tolerance``."""

    output: str
    index: int
    equals: str | int | float | bool | None = None
    near: float | None = None
    tolerance: float = 0.0


class Golden(msgspec.Struct, frozen=True):
    """A request as JSON of the Open Inference Protocol, and what its answer must be."""

    request: msgspec.Raw
    checks: tuple[Check, ...]


class Placed(msgspec.Struct, frozen=True):
    """A version whose repository folder is written."""

    triton_model: str
    golden: Golden


class TritonStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor knows about tritonserver."""

    pid: int
    alive: bool
    incarnation: int
    grpc_socket: str
    metrics_address: str
    version: str = ""


class PlacedVersion(msgspec.Struct, frozen=True):
    """A version that has a repository folder."""

    model: str
    version: int


class Status(msgspec.Struct, frozen=True):
    """Answer to ``status``."""

    triton: TritonStatus
    versions: tuple[PlacedVersion, ...] = ()


class _Refusal(msgspec.Struct):
    error: str
    code: str = ""


_Answer = TypeVar("_Answer")


class Agent:
    """Use as an async context manager. Every failure is a ``Setback``."""

    def __init__(self, socket: str) -> None:
        self._socket = socket
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the client; the model server need not be there yet."""
        # One placement may convert weights for minutes; it must not hold up the others.
        connector = aiohttp.UnixConnector(self._socket, limit=2 * limits.ASSIGNMENTS_IN_FLIGHT + 4)
        self._session = aiohttp.ClientSession(connector=connector)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the client."""
        assert self._session is not None
        await self._session.close()

    async def place(self, assignment: Assignment) -> Placed:
        """Have weights verified and the repository folder written; the same again is cheap."""
        path = f"/v1/versions/{assignment.model}/{assignment.version}"
        body = msgspec.json.encode(assignment)
        return _decode(await self._call("PUT", path, body=body, timeout_s=PLACE_S), Placed)

    async def discard(self, model: str, version: int) -> None:
        """Have the repository folder deleted."""
        await self._call("DELETE", f"/v1/versions/{model}/{version}")

    async def status(self) -> Status:
        """State of tritonserver and of the repository."""
        return _decode(await self._call("GET", "/v1/status"), Status)

    async def restart_triton(self) -> None:
        """Have tritonserver ended and started anew."""
        await self._call("POST", "/v1/triton/restart")

    async def _call(
        self, method: str, path: str, *, body: bytes | None = None, timeout_s: float = ASK_S
    ) -> bytes:
        assert self._session is not None
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with self._session.request(
                method, _BASE + path, data=body, timeout=timeout
            ) as response:
                content = await read_whole(response.content, limit_bytes=ANSWER_BYTES)
        except (aiohttp.ClientError, OSError) as error:
            raise Setback(f"the model server cannot be reached: {error}", counted=False) from error
        except TimeoutError as error:
            raise Setback(f"the model server took over {timeout_s:.0f} s: {path}") from error
        if content is None:
            raise Setback(f"the model server answered with more than {ANSWER_BYTES} bytes")
        if response.status < 400:
            return content
        raise Setback(_reason(response.status, content), permanent=response.status == 422)


def _reason(status: int, content: bytes) -> str:
    try:
        refusal = msgspec.json.decode(content, type=_Refusal)
    except msgspec.DecodeError:
        return f"the model server answered {status}"
    return f"{refusal.error} ({refusal.code})" if refusal.code else refusal.error


def _decode(content: bytes, kind: type[_Answer]) -> _Answer:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise Setback(f"the model server's answer cannot be read: {error}") from error
