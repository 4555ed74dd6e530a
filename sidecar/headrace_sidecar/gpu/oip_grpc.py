"""The gRPC front door: ``inference.GRPCInferenceService`` and ``grpc.health.v1.Health``.

An inference request is parsed to be checked and goes on as the bytes it came in; its answer is not
parsed at all. What only an operator may call (repository, shared memory, settings) is not here.
"""

import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import grpc.aio
from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2

from headrace import headers, limits
from headrace.oip import grpc_request, identifiers, priority
from headrace.oip.grpc_outline import outline
from headrace.oip.tensors import invalid
from headrace.refusals import Refusal, Refused
from headrace_sidecar.gpu import conversion, grpc_method, messages, oip_metadata
from headrace_sidecar.gpu.converters import Converters
from headrace_sidecar.gpu.grpc_caller import Caller
from headrace_sidecar.gpu.grpc_health import Health
from headrace_sidecar.gpu.grpc_stream import InferStream
from headrace_sidecar.gpu.serving import Served, Serving
from headrace_sidecar.gpu.triton import Triton
from headrace_sidecar.gpu.visit import Visit

SERVER_OPTIONS: Final = (
    ("grpc.max_receive_message_length", limits.BODY_BYTES),
    ("grpc.max_send_message_length", limits.RESPONSE_BYTES),
    # A few compressed bytes may stand for gigabytes; left as they are, they are no message.
    ("grpc.per_message_decompression", 0),
    # What a gateway lets pass; with more, the library ends calls by itself.
    ("grpc.max_metadata_size", limits.HEADERS_BYTES),
    ("grpc.absolute_max_metadata_size", limits.HEADERS_BYTES),
    # Two servers on one port would share its connections without a word.
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", 2 * limits.IN_FLIGHT_PER_NODE),
)
"""Options of the grpc.aio server that these handlers run in."""

_SERVICE: Final = "inference.GRPCInferenceService"
_OPERATORS: Final = (
    "RepositoryIndex",
    "RepositoryModelLoad",
    "RepositoryModelUnload",
    "SystemSharedMemoryStatus",
    "SystemSharedMemoryRegister",
    "SystemSharedMemoryUnregister",
    "CudaSharedMemoryStatus",
    "CudaSharedMemoryRegister",
    "CudaSharedMemoryUnregister",
    "TraceSetting",
    "LogSettings",
)


class OipGrpc:
    """Answers each call by its method."""

    def __init__(
        self,
        serving: Serving,
        triton: Triton,
        converters: Converters,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._serving = serving
        self._triton = triton
        self._converters = converters
        self._clock = clock

    def methods(self) -> grpc_method.Methods:
        """Every method of the service."""
        unary = {
            "ServerLive": self._server_live,
            "ServerReady": self._server_ready,
            "ServerMetadata": self._server_metadata,
            "ModelReady": self._model_ready,
            "ModelMetadata": self._model_metadata,
            "ModelConfig": self._model_config,
            "ModelStatistics": self._model_statistics,
            "ModelInfer": self._model_infer,
            **dict.fromkeys(_OPERATORS, _not_offered),
        }
        hear = self._serving.hear
        found = {name: grpc_method.unary(method, hear) for name, method in unary.items()}
        found["ModelStreamInfer"] = grpc_method.stream(self._model_stream_infer, hear)
        return {f"/{_SERVICE}/{name}": handler for name, handler in found.items()}

    async def _server_live(self, data: bytes, context: Any) -> Any:
        return service_pb2.ServerLiveResponse(live=True)

    async def _server_ready(self, data: bytes, context: Any) -> Any:
        ready = not self._serving.leaving and await self._triton.live()
        return service_pb2.ServerReadyResponse(ready=ready)

    async def _server_metadata(self, data: bytes, context: Any) -> Any:
        return service_pb2.ServerMetadataResponse(**oip_metadata.server())

    async def _model_ready(self, data: bytes, context: Any) -> Any:
        asked = service_pb2.ModelReadyRequest.FromString(data)
        served = self._find(asked.name, asked.version, Caller(context))
        return service_pb2.ModelReadyResponse(ready=self._serving.answers(served))

    async def _model_metadata(self, data: bytes, context: Any) -> Any:
        asked = service_pb2.ModelMetadataRequest.FromString(data)
        served = self._find(asked.name, asked.version, Caller(context))
        return service_pb2.ModelMetadataResponse(**oip_metadata.model(self._serving, served))

    async def _model_config(self, data: bytes, context: Any) -> Any:
        asked = service_pb2.ModelConfigRequest.FromString(data)
        served = self._find(asked.name, asked.version, Caller(context))
        return await oip_metadata.config(self._triton, served)

    async def _model_statistics(self, data: bytes, context: Any) -> Any:
        asked = service_pb2.ModelStatisticsRequest.FromString(data)
        if not asked.name:
            return await oip_metadata.statistics(self._triton, list(self._serving))
        served = self._find(asked.name, asked.version, Caller(context))
        return await oip_metadata.statistics(self._triton, [served])

    async def _model_infer(self, data: bytes, context: Any) -> bytes:
        caller = Caller(context)
        with self._serving.bodies.hold() as held:
            held.add(len(data))
            served, message = await self._accept(data, caller, stream=False)
            stamped = bool(caller.stamped)
            with Visit(self._serving, served, tier=caller.tier, clock=self._clock, stamped=stamped):
                answer = await self._triton.infer(message, served, timeout_s=caller.timeout_s())
        context.set_trailing_metadata(
            (
                (headers.SERVED_VERSION, str(served.assignment.version)),
                (headers.SERVED_NODE, self._serving.node),
            )
        )
        return answer + messages.sender(served.assignment.model, served.assignment.version)

    async def _model_stream_infer(self, requests: AsyncIterator[bytes], context: Any) -> None:
        caller = Caller(context)
        if self._serving.draining:
            raise Refused(Refusal.DRAINING, f"node {self._serving.node} is leaving")
        # Before anything can go wrong: a gateway counts a stream that ends with its first headers
        # as a failure of the node, and a caller can bring that about.
        await context.send_initial_metadata(())
        stream = InferStream(
            self._serving,
            self._triton,
            caller,
            accept=lambda data: self._accept(data, caller, stream=True),
            clock=self._clock,
        )
        await stream.run(requests, context.write)

    async def _accept(self, data: bytes, caller: Caller, *, stream: bool) -> tuple[Served, bytes]:
        """The version a request is for, and the message for Triton; Refused otherwise."""
        served = await self._check(data, caller, stream=stream)
        suffix = messages.address(
            served.triton_model,
            priority=priority.LEVELS[caller.tier],
            timeout_us=messages.timeout_us(caller.timeout_s()),
        )
        return served, data + suffix

    async def _check(self, data: bytes, caller: Caller, *, stream: bool) -> Served:
        """The version a request is for, when Triton may see it; Refused otherwise."""
        if len(data) > limits.INLINE_BYTES:
            seen = outline(data)
            served = self._find(seen.model, seen.version, caller)
            self._serving.check_ready(served)
            if conversion.weighs(seen.structured_bytes, len(data), served.assignment):
                await self._converters.check(data, served.assignment, stream=stream)
                return served
        try:
            asked = messages.parse_request(data)
        except DecodeError as error:
            raise grpc_method.malformed() from error
        served = self._find(asked.model_name, asked.model_version, caller)
        self._serving.check_ready(served)
        grpc_request.check(asked, served.assignment, stream=stream)
        return served

    def _find(self, model: str, version: str, caller: Caller) -> Served:
        identifiers.check_model(model, "model_name")
        if caller.model not in ("", model):
            # In a stream. The routes of the other model, with their limits, would be passed by.
            raise invalid("model_name", f"the call was routed for {caller.model!r}")
        number = identifiers.parse_version(version or caller.version, "model_version")
        return self._serving.find(model, number, routed=str(number) == caller.stamped)


async def _not_offered(data: bytes, context: Any) -> Any:
    raise Refused(Refusal.NOT_IMPLEMENTED, "this method is for the operator of the node")


def grpc_handlers(
    serving: Serving,
    triton: Triton,
    converters: Converters,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[grpc_method.Handlers, ...]:
    """Generic handlers of the front door, for a grpc.aio server with SERVER_OPTIONS."""
    methods = OipGrpc(serving, triton, converters, clock=clock).methods()
    return (grpc_method.Handlers({**methods, **Health(serving, triton).methods()}),)


def grpc_server(handlers: tuple[grpc_method.Handlers, ...]) -> Any:
    """A grpc.aio server with these handlers; keep a reference to it, or it stops silently."""
    return grpc.aio.server(handlers=handlers, options=SERVER_OPTIONS)
