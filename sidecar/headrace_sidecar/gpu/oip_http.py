"""The HTTP front door: the Open Inference Protocol, checked here, run by Triton over gRPC.

Nothing reaches Triton that ``headrace.oip`` did not accept. A caller who leaves cancels the call to
Triton, because the runner cancels the handler.
"""

import logging
import time
from collections.abc import Callable

from aiohttp import hdrs, http_parser, web

from headrace import headers, limits
from headrace.oip import http_request, identifiers, patience, priority
from headrace.oip.http_path import Target, parse
from headrace.refusals import Refusal, Refused
from headrace_sidecar.gpu import http_answer, http_body, messages, oip_metadata
from headrace_sidecar.gpu.converters import Converters
from headrace_sidecar.gpu.serving import Served, Serving
from headrace_sidecar.gpu.triton import Triton
from headrace_sidecar.gpu.visit import Visit

_log = logging.getLogger(__name__)


class OipHttp:
    """Answers each request by its path."""

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

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer to a request; what goes wrong becomes a refusal."""
        try:
            return await self._answer(request)
        except Refused as refused:
            self._serving.hear(refused)
            response = http_answer.refusal(refused)
            if not request.content.at_eof():
                # What is left of the body is not worth reading.
                response.force_close()
            return response
        except Exception:
            _log.exception("request %s %s failed", request.method, request.path)
            return http_answer.refusal(
                Refused(Refusal.INTERNAL, "the sidecar failed on this request", sick=True)
            )

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        target = parse(request.raw_path.partition("?")[0])
        if request.method not in target.methods:
            return _method_not_allowed(target)
        match target.ask:
            case "infer":
                return await self._infer(request, self._find(request, target))
            case "server":
                return http_answer.plain(oip_metadata.server())
            case "live":
                return http_answer.empty()
            case "server-ready":
                return await self._server_ready()
            case _:
                return await self._about(target, self._find(request, target))

    def _find(self, request: web.BaseRequest, target: Target) -> Served:
        given = request.headers
        stamped = given.get(headers.VERSION, "")
        version = target.version
        if version is None:
            named = stamped or given.get(headers.VERSION_HINT, "")
            version = identifiers.parse_version(named, headers.VERSION)
        return self._serving.find(target.model, version, routed=str(version) == stamped)

    async def _server_ready(self) -> web.Response:
        if self._serving.leaving:
            raise Refused(Refusal.DRAINING, f"node {self._serving.node} is leaving")
        if not await self._triton.live():
            raise Refused(Refusal.NOT_READY, "the model server does not answer")
        return http_answer.empty()

    async def _about(self, target: Target, served: Served) -> web.Response:
        match target.ask:
            case "ready":
                self._serving.check_answers(served)
                return http_answer.empty()
            case "config":
                answer = await oip_metadata.config(self._triton, served)
                return http_answer.plain(oip_metadata.plain(answer.config))
            case "stats":
                answer = await oip_metadata.statistics(self._triton, [served])
                return http_answer.plain(oip_metadata.plain(answer))
            case _:
                return http_answer.plain(oip_metadata.model(self._serving, served))

    async def _infer(self, request: web.BaseRequest, served: Served) -> web.Response:
        http_body.check_encoding(request)
        self._serving.check_ready(served)
        http_body.check_size(request)
        with self._serving.bodies.hold() as held:
            body = await http_body.read(request, held)
            given = request.headers
            asked = await self._converters.parse(
                body, given.get(http_request.HEADER_LENGTH), served.assignment
            )
            timeout_s = patience.timeout_s(given.get(patience.EXPECTED_TIMEOUT))
            tier = priority.tier_of(given.get(headers.TIER), shadow=headers.SHADOW in given)
            suffix = messages.address(
                served.triton_model,
                priority=priority.LEVELS[tier],
                timeout_us=messages.timeout_us(timeout_s),
            )
            stamped = headers.VERSION in given
            with Visit(self._serving, served, tier=tier, clock=self._clock, stamped=stamped):
                answer = await self._triton.infer(
                    messages.encode(asked, suffix), served, timeout_s=timeout_s
                )
            response = messages.parse_response(answer)
            rendered, header_bytes = await self._converters.render(
                asked,
                messages.results(response),
                messages.response_parameters(response),
                served.assignment,
            )
        return http_answer.inferred(self._serving, served, rendered, header_bytes)


def _method_not_allowed(target: Target) -> web.Response:
    allowed = ", ".join(target.methods)
    response = http_answer.refusal(
        Refused(Refusal.METHOD_NOT_ALLOWED, f"use {allowed} here", where="method")
    )
    response.headers[hdrs.ALLOW] = allowed
    return response


def http_app(
    serving: Serving,
    triton: Triton,
    converters: Converters,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> web.Server:
    """The front door as a server; run it with ``http_runner``.

    It is no ``web.Application``: one handler needs no router and no middlewares on the hot path.
    """
    # The pure-Python parser is slower and has been fooled into smuggling requests.
    if http_parser.HttpRequestParser is http_parser.HttpRequestParserPy:
        raise RuntimeError("aiohttp runs without its C parser; install a wheel that has it")
    return web.Server(
        OipHttp(serving, triton, converters, clock=clock).handle,
        access_log=None,
        handler_cancellation=True,
        auto_decompress=False,
        max_line_size=limits.HEADERS_BYTES,
        max_field_size=limits.HEADERS_BYTES,
        keepalive_timeout=75.0,
    )


def http_runner(app: web.Server, *, shutdown_timeout_s: float = 10.0) -> web.ServerRunner:
    """Runner of the front door."""
    return web.ServerRunner(app, shutdown_timeout=shutdown_timeout_s)
