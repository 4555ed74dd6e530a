"""Admin API of the configurations that were in effect, and of the way back to one."""

import asyncio
from typing import Any, Final

import msgspec
from aiohttp import web

from headrace.config.changes import changes
from headrace.config.load import load
from headrace_xds import views
from headrace_xds.admin_parts import PARTS, authorship, flag, problem, refused
from headrace_xds.revisions import Authorship, Revision, Revisions, text_diff


async def _list(request: web.Request) -> web.Response:
    found = await asyncio.to_thread(_kept(request).newest_first)
    return web.json_response({"items": [views.revision_view(revision) for revision in found]})


async def _show(request: web.Request) -> web.Response:
    """One revision, what it changed, and its text against that of the one before."""
    view = await asyncio.to_thread(_described, _kept(request), _number(request))
    if view is None:
        return problem(404, f"there is no revision {_number(request)}")
    return web.json_response(view)


async def _rollback(request: web.Request) -> web.Response:
    parts, number = request.app[PARTS], _number(request)
    revision = await asyncio.to_thread(_kept(request).get, number)
    if revision is None:
        return problem(404, f"there is no revision {number}")
    by = authorship(request)
    note = by.note or f"rollback to {number}"
    dry_run = flag(request, "dryRun")
    checked = await parts.configuration.rollback(
        revision, by=Authorship(by.author, by.origin, note), dry_run=dry_run
    )
    if checked.compiled is None:
        return refused(checked)
    return web.json_response(
        {"dryRun": dry_run, "generation": parts.configuration.generation, "revision": number}
    )


def _described(kept: Revisions, number: int) -> dict[str, Any] | None:
    revision = kept.get(number)
    if revision is None:
        return None
    before = kept.before(number)
    files = before.files if before else {}
    return {
        **views.revision_view(revision),
        "changes": [msgspec.to_builtins(c) for c in changes(_objects(before), _objects(revision))],
        "diff": text_diff(files, revision.files),
    }


def _objects(revision: Revision | None) -> list[Any]:
    read = load(sorted(revision.files.items())) if revision else None
    return [placed.object for placed in read.objects] if read else []


def _kept(request: web.Request) -> Revisions:
    kept = request.app[PARTS].configuration.revisions
    assert kept is not None, "the control server keeps revisions"
    return kept


def _number(request: web.Request) -> int:
    return int(request.match_info["number"])


ROUTES: Final = (
    web.get("/v1/revisions", _list),
    web.get(r"/v1/revisions/{number:\d{1,15}}", _show),
    web.post(r"/v1/revisions/{number:\d{1,15}}/rollback", _rollback),
)
"""Paths and their handlers."""
