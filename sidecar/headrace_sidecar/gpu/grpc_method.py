"""Methods of a gRPC service as generic handlers of bytes, with refusals at their edge."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from headrace.refusals import Refusal, Refused
from headrace_sidecar.gpu import grpc_answer

Handler = Any
"""``grpc.RpcMethodHandler``, whose published stub is generic where the class is not."""
Methods = Mapping[str, Handler]
"""Handlers by full method name."""

Unary = Callable[[bytes, Any], Awaitable[Message | bytes]]
Stream = Callable[[AsyncIterator[bytes], Any], Awaitable[None]]
Hear = Callable[[Refused], None]
"""Is told of every refusal."""
_log = logging.getLogger(__name__)


class Handlers(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """A table of methods; what is not in it is UNIMPLEMENTED."""

    def __init__(self, methods: Methods) -> None:
        self._methods = methods

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Handler of a call."""
        return self._methods.get(handler_call_details.method)


def malformed() -> Refused:
    """Refusal of bytes that are not the message they should be."""
    return Refused(Refusal.INVALID_VALUE, "the message cannot be decoded")


def unary(method: Unary, hear: Hear) -> Handler:
    """Handler of one request and one response."""

    async def refuse(context: Any, refused: Refused) -> None:
        hear(refused)
        await grpc_answer.abort(context, refused)

    async def handle(data: bytes, context: Any) -> bytes:
        try:
            answer = await method(data, context)
            return answer if isinstance(answer, bytes) else answer.SerializeToString()
        except Refused as refused:
            await refuse(context, refused)
        except DecodeError:
            await refuse(context, malformed())
        except grpc.aio.AbortError:
            raise
        except Exception:
            _log.exception("a gRPC call failed")
            await refuse(context, _internal())
        raise AssertionError("abort does not return")

    return grpc.unary_unary_rpc_method_handler(handle)


def stream(method: Stream, hear: Hear) -> Handler:
    """Handler of many requests and many responses."""

    async def handle(requests: AsyncIterator[bytes], context: Any) -> None:
        try:
            await method(requests, context)
        except Refused as refused:
            hear(refused)
            await grpc_answer.abort(context, refused)
        except grpc.aio.AbortError:
            raise
        except Exception:
            _log.exception("a gRPC stream failed")
            await grpc_answer.abort(context, _internal())

    return grpc.stream_stream_rpc_method_handler(handle)


def _internal() -> Refused:
    return Refused(Refusal.INTERNAL, "the sidecar failed on this request", sick=True)
