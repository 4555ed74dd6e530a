"""``Triton``: async client of the tritonserver beside this sidecar, over its Unix socket.

Every call has a deadline, and every failure comes out as a ``Refused``. A server that was
restarted listens on a new socket: ``reconnect`` moves on to it. When Triton says that the process
of a model died, ``on_stub_death`` hears the Triton model's name; repair is not decided here.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

import grpc
import grpc.aio
from tritonclient.grpc import service_pb2

from headrace import limits
from headrace.oip import upstream
from headrace.refusals import Refusal, Refused
from headrace_sidecar.gpu.serving import Served

CONTROL_DEADLINE_S: Final = 5.0
"""Of calls that only ask."""
ABANDON_PAUSE_S: Final = 0.025
"""Between two inferences that are given up."""
LOAD_DEADLINE_S: Final = 300.0
"""Of a load, which returns when the model is warm."""

_SERVICE: Final = "/inference.GRPCInferenceService/"
_MESSAGE_MARGIN_BYTES: Final = 2**20
"""What the front door adds to a request of the largest size."""
_OPTIONS: Final = (
    ("grpc.max_send_message_length", limits.BODY_BYTES + _MESSAGE_MARGIN_BYTES),
    ("grpc.max_receive_message_length", limits.RESPONSE_BYTES),
    # A request is refused at once when there is no server; who retries it is the gateway.
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 250),
    # Each incarnation gets a connection of its own, also under the same path.
    ("grpc.use_local_subchannel_pool", 1),
)


_EOF: Final[Any] = grpc.aio.EOF  # type: ignore[attr-defined]
"""What ``read`` returns after the last message; the published stubs lack it."""


def ignore_stub_death(triton_model: str) -> None:
    """Report nobody needs."""
    del triton_model


def _channel(target: str) -> Any:
    """A channel, untyped: the published stubs of grpc.aio lack the defaults of its methods."""
    return grpc.aio.insecure_channel(target, options=_OPTIONS)


class Triton:
    """One connection to one incarnation of tritonserver."""

    def __init__(
        self, target: str, *, on_stub_death: Callable[[str], None] = ignore_stub_death
    ) -> None:
        self.target = target
        self.on_stub_death = on_stub_death
        self._inside: dict[str, set[Any]] = {}
        self._open(target)

    def __repr__(self) -> str:
        """One line for operators."""
        return f"Triton({self.target} {self._channel.get_state().name.lower()})"

    def _open(self, target: str) -> None:
        self._channel = _channel(target)
        self._infer = self._channel.unary_unary(f"{_SERVICE}ModelInfer")
        self._stream = self._channel.stream_stream(f"{_SERVICE}ModelStreamInfer")

    async def reconnect(self, target: str) -> None:
        """Go on with another incarnation; calls to the old one end as lost."""
        old, self.target = self._channel, target
        self._open(target)
        await old.close()

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()

    async def infer(self, message: bytes, served: Served, *, timeout_s: float) -> bytes:
        """The ModelInferResponse to a ModelInferRequest, both as bytes."""
        call = self._infer(message, timeout=timeout_s)
        inside = self._inside.setdefault(served.triton_model, set())
        inside.add(call)
        try:
            return bytes(await call)
        except grpc.aio.AioRpcError as error:
            raise self._refuse(error, served) from error
        except asyncio.CancelledError:
            call.cancel()
            _reraise_own_cancellation()
            raise _lost(served) from None
        finally:
            inside.discard(call)

    async def stream(
        self, message: bytes, served: Served, *, timeout_s: float
    ) -> AsyncGenerator[bytes, None]:
        """Every ModelStreamInferResponse to one ModelInferRequest, all as bytes.

        An error inside a response is the reader's to see. The call is half-closed at once: Triton
        does not shut down while a stream is open.
        """
        call = self._stream(timeout=timeout_s)
        inside = self._inside.setdefault(served.triton_model, set())
        inside.add(call)
        try:
            await call.write(message)
            await call.done_writing()
            while (answer := await call.read()) is not _EOF:
                yield answer
        except grpc.aio.AioRpcError as error:
            raise self._refuse(error, served) from error
        except (asyncio.CancelledError, asyncio.InvalidStateError):
            _reraise_own_cancellation()
            raise _lost(served) from None
        finally:
            inside.discard(call)
            call.cancel()

    async def abandon(self, triton_model: str) -> None:
        """End every inference inside a model as lost: its process will not answer any more.

        One by one: gateways retry them elsewhere within a budget that a burst would exceed.
        """
        calls = tuple(self._inside.pop(triton_model, ()))
        pause_s = min(ABANDON_PAUSE_S, limits.ABANDON_S / max(1, len(calls)))
        for call in calls:
            if not call.done():
                call.cancel()
                await asyncio.sleep(pause_s)

    def _refuse(self, error: grpc.aio.AioRpcError, served: Served) -> Refused:
        """Refusal that a failed inference means; reports a death that it tells of."""
        details = error.details() or ""
        self.hear(details, served.triton_model)
        return upstream.refuse(error.code().name, details, idempotent=served.assignment.idempotent)

    def hear(self, details: str, triton_model: str) -> None:
        """Report the death of a model's process when an error's text tells of it."""
        if upstream.is_stub_death(details):
            self.on_stub_death(triton_model)

    async def live(self) -> bool:
        """Whether the server answers."""
        try:
            answer = await self._ask("ServerLive", timeout_s=1.0)
        except Refused:
            return False
        return bool(answer.live)

    async def ready(self, triton_model: str) -> bool:
        """Whether the server holds the model; it says so of a model whose process died, too."""
        try:
            answer = await self._ask("ModelReady", name=triton_model)
        except Refused:
            return False
        return bool(answer.ready)

    async def load(self, triton_model: str, *, timeout_s: float = LOAD_DEADLINE_S) -> None:
        """Load a model of the repository and warm it up; Refused with Triton's reason."""
        await self._ask("RepositoryModelLoad", timeout_s=timeout_s, model_name=triton_model)

    async def unload(self, triton_model: str) -> None:
        """Begin to unload a model; requests inside finish."""
        await self._ask("RepositoryModelUnload", model_name=triton_model)

    async def index(self) -> dict[str, str]:
        """State of every model in the repository, such as READY, by name."""
        answer = await self._ask("RepositoryIndex")
        return {model.name: model.state for model in answer.models}

    async def server(self) -> Any:
        """ServerMetadataResponse."""
        return await self._ask("ServerMetadata")

    async def statistics(self, triton_model: str) -> Any:
        """ModelStatisticsResponse of a model."""
        return await self._ask("ModelStatistics", name=triton_model)

    async def metadata(self, triton_model: str) -> Any:
        """ModelMetadataResponse of a model."""
        return await self._ask("ModelMetadata", name=triton_model)

    async def config(self, triton_model: str) -> Any:
        """ModelConfigResponse of a model."""
        return await self._ask("ModelConfig", name=triton_model)

    async def _ask(
        self,
        method: str,
        *,
        timeout_s: float = CONTROL_DEADLINE_S,
        **fields: str,
    ) -> Any:
        message = getattr(service_pb2, f"{method}Request")(**fields)
        answer = getattr(service_pb2, f"{method}Response")
        call = self._channel.unary_unary(f"{_SERVICE}{method}")
        try:
            return answer.FromString(await call(message.SerializeToString(), timeout=timeout_s))
        except grpc.aio.AioRpcError as error:
            raise upstream.refuse(
                error.code().name, error.details() or "", idempotent=True
            ) from error
        except asyncio.CancelledError:
            _reraise_own_cancellation()
            raise Refused(
                Refusal.NOT_READY, "the model server is being restarted", sick=True
            ) from None


def _reraise_own_cancellation() -> None:
    """Go on being cancelled; return when only the call was: its channel was closed under it."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _lost(served: Served) -> Refused:
    return upstream.refuse(
        "UNAVAILABLE", "connection closed", idempotent=served.assignment.idempotent
    )
