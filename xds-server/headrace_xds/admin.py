"""The admin API: JSON over HTTP on loopback. ``docs/admin-api.md`` describes every path.

Errors are problem details (RFC 9457). The Host and Origin of a request are checked, so that a web
page which a person happens to visit cannot reach it through their browser.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlsplit

from aiohttp import web

from headrace import limits
from headrace.config.edit import NotFoundError
from headrace.config.schema import KINDS
from headrace_xds import admin_quarantine, admin_revisions, views
from headrace_xds.admin_parts import PARTS, Parts, authorship, flag, problem, refused
from headrace_xds.configuration import Unwritable

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


def admin_app(parts: Parts, *, hosts: frozenset[str] = frozenset()) -> web.Application:
    """The API; ``hosts`` are host names that are accepted besides loopback."""
    app = web.Application(
        middlewares=[_only_from(LOOPBACK | hosts), _problem_details],
        client_max_size=limits.CONFIG_FILE_BYTES,
    )
    app[PARTS] = parts
    app.add_routes(
        [
            web.get("/healthz", _healthz),
            web.get("/readyz", _readyz),
            web.get("/metrics", _metrics),
            web.get("/v1/generation", _generation),
            web.get("/v1/problems", _problems),
            web.get("/v1/objects", _objects),
            web.get("/v1/objects/{kind}", _objects),
            web.get("/v1/objects/{kind}/{name}", _object),
            web.delete("/v1/objects/{kind}/{name}", _delete),
            web.post("/v1/apply", _apply),
            web.get("/v1/proxies", _proxies),
            web.get("/v1/proxies/{id:.+}/resources", _resources),
            web.get("/v1/nodes", _nodes),
            web.get("/v1/endpoints", _endpoints),
            *admin_quarantine.ROUTES,
            *admin_revisions.ROUTES,
        ]
    )
    return app


def _only_from(hosts: frozenset[str]) -> Any:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if _host_of(f"//{request.headers.get('Host', '')}") not in hosts:
            return problem(403, "the Host of a request must be this machine; use 127.0.0.1")
        origin = request.headers.get("Origin")
        if origin is not None and _host_of(origin) not in hosts:
            return problem(403, f"requests from the web page {origin} are not accepted")
        return await handler(request)

    return check


def _host_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


@web.middleware
async def _problem_details(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        detail = f"{request.method} {request.path}: {error.reason}"
        response = problem(error.status, detail)
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
        return response
    except Unwritable as error:
        return problem(409, f"the configuration folder must be corrected first: {error}")
    except OSError as error:
        return problem(507, f"the configuration folder cannot be written: {error.strerror}")


async def _healthz(_: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


async def _readyz(request: web.Request) -> web.Response:
    reason = request.app[PARTS].is_ready()
    if reason is not None:
        return problem(503, reason)
    return web.json_response({"status": "ready"})


async def _metrics(request: web.Request) -> web.Response:
    body, content_type = request.app[PARTS].render_metrics()
    return web.Response(body=body, headers={"Content-Type": content_type})


async def _generation(request: web.Request) -> web.Response:
    parts = request.app[PARTS]
    fleet = parts.control.fleet
    proxies = list(fleet.proxies.values())
    current = sum(1 for proxy in proxies if fleet.in_effect(proxy))
    return web.json_response(
        {
            "generation": parts.configuration.generation,
            "accepted": parts.configuration.accepted,
            "inEffect": bool(proxies) and current == len(proxies),
            "proxies": {"connected": len(proxies), "inEffect": current},
            "canary": views.canary_view(parts.publisher, now_s=parts.now()),
        }
    )


async def _problems(request: web.Request) -> web.Response:
    configuration = request.app[PARTS].configuration
    return web.json_response(
        {
            "accepted": configuration.accepted,
            "generation": configuration.generation,
            "unreadable": list(configuration.unreadable),
            "items": views.problem_views(configuration.problems),
        }
    )


async def _objects(request: web.Request) -> web.Response:
    parts = request.app[PARTS]
    kind = _kind(request) if "kind" in request.match_info else None
    defaults = flag(request, "defaults")
    items = [placed.object for placed in parts.configuration.objects]
    parts.statuses.forget_others(items)
    return web.json_response(
        {
            "generation": parts.configuration.generation,
            "items": [
                views.object_view(item, parts.statuses.of(item), defaults=defaults)
                for item in items
                if kind is None or type(item).__name__ == kind
            ],
        }
    )


async def _object(request: web.Request) -> web.Response:
    parts = request.app[PARTS]
    kind, name = _kind(request), request.match_info["name"]
    for placed in parts.configuration.objects:
        item = placed.object
        if (type(item).__name__, item.metadata.name) == (kind, name):
            defaults = flag(request, "defaults")
            return web.json_response(
                views.object_view(item, parts.statuses.of(item), defaults=defaults)
            )
    return problem(404, f"there is no {kind} {name!r}")


async def _apply(request: web.Request) -> web.Response:
    parts = request.app[PARTS]
    try:
        text = await request.text()
    except (UnicodeDecodeError, LookupError):
        return problem(400, "the body is not UTF-8 text")
    dry_run = flag(request, "dryRun")
    by = authorship(request)
    checked, results = await parts.configuration.apply(text, by=by, dry_run=dry_run)
    if checked.compiled is None:
        return refused(checked)
    split = [(*key.split("/", 1), result) for key, result in results.items()]
    return web.json_response(
        {
            "dryRun": dry_run,
            "generation": parts.configuration.generation,
            "results": [{"kind": k, "name": n, "result": result} for k, n, result in split],
            "problems": views.problem_views(checked.problems),
        }
    )


async def _delete(request: web.Request) -> web.Response:
    parts = request.app[PARTS]
    kind, name = _kind(request), request.match_info["name"]
    dry_run = flag(request, "dryRun")
    try:
        checked = await parts.configuration.delete(
            kind, name, by=authorship(request), dry_run=dry_run
        )
    except NotFoundError:
        return problem(404, f"there is no {kind} {name!r}")
    if checked.compiled is None:
        return refused(checked)
    return web.json_response(
        {
            "dryRun": dry_run,
            "generation": parts.configuration.generation,
            "results": [{"kind": kind, "name": name, "result": "deleted"}],
            "problems": views.problem_views(checked.problems),
        }
    )


async def _proxies(request: web.Request) -> web.Response:
    parts = request.app[PARTS]
    return web.json_response(
        {
            "generation": parts.configuration.generation,
            "items": views.proxy_views(parts.control, now_s=parts.now()),
        }
    )


async def _resources(request: web.Request) -> web.Response:
    parts, name = request.app[PARTS], request.match_info["id"]
    proxy = parts.control.fleet.proxies.get(name)
    if proxy is None:
        return problem(404, f"proxy {name!r} is not connected")
    served = parts.publisher.offered(proxy.id, proxy.build)
    return web.json_response({"items": views.resource_views(served)})


async def _nodes(request: web.Request) -> web.Response:
    parts = request.app[PARTS]
    nodes = views.node_views(parts.control, parts.observer.rejected, now_s=parts.now())
    return web.json_response({"items": nodes})


async def _endpoints(request: web.Request) -> web.Response:
    return web.json_response({"items": views.endpoint_views(request.app[PARTS].control)})


def _kind(request: web.Request) -> str:
    """Kind in the path, whatever its case and number: ``models`` is ``Model``."""
    given = request.match_info["kind"].lower()
    for kind in KINDS:
        plural = f"{kind}es" if kind.endswith("sh") else f"{kind}s"
        if given in (kind.lower(), plural.lower()):
            return kind
    raise web.HTTPNotFound(reason=f"no kind {given}; kinds are {', '.join(KINDS)}")


def wall_clock() -> str:
    """Now, as RFC 3339 in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
