"""The metrics port: the node's own page, Triton's page as it is, and whether the node is up."""

from collections.abc import Callable
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

TRITON_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def metrics_app(
    registry: CollectorRegistry, *, triton_page: Callable[[], bytes]
) -> web.Application:
    """``/metrics``, ``/metrics/triton`` and ``/healthz``."""

    async def own(request: web.Request) -> web.Response:
        body = generate_latest(registry)
        return web.Response(body=body, headers={"content-type": CONTENT_TYPE_LATEST})

    async def triton(request: web.Request) -> web.Response:
        page = triton_page()
        if not page:
            return web.Response(status=503, text="Triton's metrics were not read yet\n")
        return web.Response(body=page, headers={"content-type": TRITON_CONTENT_TYPE})

    async def health(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    app = web.Application()
    app.router.add_get("/metrics", own)
    app.router.add_get("/metrics/triton", triton)
    app.router.add_get("/healthz", health)
    return app
