"""What a node's front door will say to a request that the gateway lets through.

Tensors of gRPC messages are not looked at: a node decodes them.
"""

from headrace.assignment import Assignment
from headrace.oip import http_path, http_request
from headrace.refusals import Refusal, Refused
from headrace.why.request import Request


def check(request: Request, assignment: Assignment | None) -> str:
    """What the request asks a node for; Refused as the node would."""
    target = http_path.parse(request.plain_path)
    if request.method not in target.methods:
        raise Refused(Refusal.METHOD_NOT_ALLOWED, f"use {', '.join(target.methods)} here")
    if target.ask != "infer" or assignment is None:
        return target.ask
    encoding = (request.get("content-encoding") or "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise Refused(Refusal.ENCODING_NOT_ACCEPTED, f"content-encoding {encoding[:32]!r}")
    if request.body:
        http_request.parse(request.body, request.get(http_request.HEADER_LENGTH), assignment)
    return target.ask
