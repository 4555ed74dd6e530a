"""The model server's API for the GPU sidecar of its node: HTTP over a Unix socket."""

import dataclasses
import re
from typing import Any

import msgspec
from aiohttp import web

from headrace import limits
from headrace.assignment import Assignment
from headrace_models.failure import Failure
from headrace_models.placement import Placement
from headrace_models.supervisor import Supervisor

_MODEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_VERSION = re.compile(r"[1-9][0-9]{0,5}")

_PLACEMENT = web.AppKey("placement", Placement)
_SUPERVISOR = web.AppKey("supervisor", Supervisor)


def app(placement: Placement, supervisor: Supervisor) -> web.Application:
    """The API as an application."""
    made = web.Application(client_max_size=limits.ASSIGNMENT_BYTES, middlewares=[_failures])
    made[_PLACEMENT] = placement
    made[_SUPERVISOR] = supervisor
    made.add_routes(
        [
            web.put("/v1/versions/{model}/{version}", _put_version),
            web.delete("/v1/versions/{model}/{version}", _delete_version),
            web.get("/v1/status", _get_status),
            web.post("/v1/triton/restart", _post_restart),
        ]
    )
    return made


async def _put_version(request: web.Request) -> web.Response:
    model, version = _named(request)
    assignment = _decode(await request.read())
    if (assignment.model, assignment.version) != (model, version):
        raise _invalid(f"it is {assignment.name}, the path says {model}@{version}", "path")
    placed = await request.app[_PLACEMENT].place(assignment)
    return _json(200, {"triton_model": placed.triton_model, "golden": placed.golden})


async def _delete_version(request: web.Request) -> web.Response:
    await request.app[_PLACEMENT].remove(*_named(request))
    return web.Response(status=204)


async def _get_status(request: web.Request) -> web.Response:
    versions = [
        {
            "model": one.model,
            "version": one.version,
            "executor": one.executor,
            "artifact": one.artifact,
        }
        for one in request.app[_PLACEMENT].placed()
    ]
    triton = dataclasses.asdict(request.app[_SUPERVISOR].status())
    return _json(200, {"triton": triton, "versions": versions})


async def _post_restart(request: web.Request) -> web.Response:
    request.app[_SUPERVISOR].request_restart()
    return web.Response(status=202)


@web.middleware
async def _failures(request: web.Request, handler: Any) -> web.StreamResponse:
    """Failures become 422 when trying again cannot help, else 503."""
    try:
        response: web.StreamResponse = await handler(request)
    except Failure as failure:
        status = 422 if failure.permanent else 503
        body = {
            "code": failure.code,
            "error": failure.message,
            "where": failure.where,
            "remedy": failure.remedy,
        }
        return _json(status, body)
    return response


def _named(request: web.Request) -> tuple[str, int]:
    """Model and version in the path. They become folder names, so nothing else may pass."""
    model, version = request.match_info["model"], request.match_info["version"]
    if not _MODEL.fullmatch(model) or not _VERSION.fullmatch(version):
        raise _invalid("no model version has such a name", "path")
    return model, int(version)


def _decode(body: bytes) -> Assignment:
    try:
        return msgspec.json.decode(body, type=Assignment, strict=False)
    except msgspec.DecodeError as error:
        raise _invalid(str(error), "body") from error


def _invalid(message: str, where: str) -> Failure:
    return Failure(
        "invalid_assignment",
        message,
        where=where,
        remedy="send an assignment as the control server makes it",
    )


def _json(status: int, value: object) -> web.Response:
    return web.Response(
        status=status, body=msgspec.json.encode(value), content_type="application/json"
    )
