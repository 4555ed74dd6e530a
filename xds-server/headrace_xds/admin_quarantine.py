"""Admin API of what proxies refused, and of the canary proxy."""

from typing import Final

from aiohttp import web

from headrace_xds import views
from headrace_xds.admin_parts import PARTS, problem


async def _list(request: web.Request) -> web.Response:
    return web.json_response({"items": views.quarantine_views(request.app[PARTS].publisher)})


async def _release(request: web.Request) -> web.Response:
    parts = request.app[PARTS]
    given, name = request.match_info["type"], request.match_info["name"]
    type_url = next((url for url, s in views.SHORT_TYPES.items() if given.upper() == s), given)
    released = parts.publisher.release(type_url, name)
    if not released:
        return problem(404, f"nothing of {given} {name!r} is quarantined")
    return web.json_response({"released": len(released)})


async def _release_canary(request: web.Request) -> web.Response:
    if not request.app[PARTS].publisher.release_canary():
        return problem(409, "nobody waits for a canary proxy")
    return web.json_response({"released": True})


ROUTES: Final = (
    web.get("/v1/quarantine", _list),
    web.delete("/v1/quarantine/{type}/{name:.+}", _release),
    web.post("/v1/canary/release", _release_canary),
)
"""Paths and their handlers."""
