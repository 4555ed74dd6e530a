"""What the handlers of the admin API share: what they show and change, and how they answer."""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from aiohttp import web

from headrace_xds import views
from headrace_xds.compiler import Checked
from headrace_xds.configuration import Configuration
from headrace_xds.control import Control
from headrace_xds.observer import StreamObserver
from headrace_xds.publish.publisher import Publisher
from headrace_xds.revisions import Authorship
from headrace_xds.status import Statuses


@dataclass(frozen=True)
class Parts:
    """What the admin API shows and changes."""

    configuration: Configuration
    control: Control
    observer: StreamObserver
    publisher: Publisher
    statuses: Statuses
    now: Callable[[], float]
    is_ready: Callable[[], str | None]
    """Why the server is not ready, None when it is."""
    render_metrics: Callable[[], tuple[bytes, str]]


PARTS: Final = web.AppKey("parts", Parts)


def problem(status: int, detail: str, **members: object) -> web.Response:
    """An error as problem details."""
    body = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        **members,
    }
    return web.json_response(body, status=status, content_type="application/problem+json")


def flag(request: web.Request, name: str) -> bool:
    """Whether a switch is on in the query."""
    return request.query.get(name, "").lower() in ("1", "true")


def refused(checked: Checked) -> web.Response:
    """Why a configuration was not put into effect."""
    if checked.failure:
        return problem(503, f"nothing was changed: {checked.failure}")
    errors = sum(1 for found in checked.problems if found.is_error)
    return problem(
        400,
        f"the configuration has {errors} errors; nothing was changed",
        problems=views.problem_views(checked.problems),
    )


def authorship(request: web.Request) -> Authorship:
    """Who sends an edit, as they say themselves: the API is on loopback and trusts its callers."""
    return Authorship(request.query.get("author", ""), "api", request.query.get("note", ""))
