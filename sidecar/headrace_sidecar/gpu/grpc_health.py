"""``grpc.health.v1.Health``: the node under the empty name, model versions as ``model@version``.

Its two messages have one field each, so they are wrapper types of protobuf on the wire: a request
is a StringValue (service = 1), a response an Int32Value (status = 1).
"""

from collections.abc import AsyncIterator
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import Int32Value, StringValue

from headrace import names
from headrace.refusals import Refusal, Refused
from headrace_sidecar.gpu import grpc_answer, grpc_method
from headrace_sidecar.gpu.serving import Serving
from headrace_sidecar.gpu.triton import Triton

SERVING: Final = 1
NOT_SERVING: Final = 2
SERVICE_UNKNOWN: Final = 3
_SERVICE: Final = "/grpc.health.v1.Health/"


def _ignore(refused: Refused) -> None:
    """Who asks for health is no caller."""
    del refused


class Health:
    """Says whether the node, or a model version on it, takes requests."""

    def __init__(self, serving: Serving, triton: Triton) -> None:
        self._serving = serving
        self._triton = triton

    def methods(self) -> grpc_method.Methods:
        """Both methods of the service."""
        return {
            f"{_SERVICE}Check": grpc_method.unary(self._check, _ignore),
            f"{_SERVICE}Watch": grpc.unary_stream_rpc_method_handler(self._watch),
        }

    async def _check(self, data: bytes, context: Any) -> Any:
        del context
        service = StringValue.FromString(data).value
        status = await self._status(service)
        if status == SERVICE_UNKNOWN:
            raise Refused(Refusal.MODEL_NOT_FOUND, f"unknown service {service[:128]!r}")
        return Int32Value(value=status)

    async def _watch(self, data: bytes, context: Any) -> AsyncIterator[bytes]:
        try:
            service = StringValue.FromString(data).value
        except DecodeError:
            await grpc_answer.abort(context, grpc_method.malformed())
            return
        said = 0
        while True:
            change = self._serving.change
            status = await self._status(service)
            if status != said:
                said = status
                yield Int32Value(value=status).SerializeToString()
            await change.wait()

    async def _status(self, service: str) -> int:
        if not service:
            up = not self._serving.leaving and await self._triton.live()
            return SERVING if up else NOT_SERVING
        try:
            model, version = names.parse_assignment(service)
            served = self._serving.find(model, version)
        except (ValueError, Refused):
            return SERVICE_UNKNOWN
        return SERVING if self._serving.answers(served) else NOT_SERVING
