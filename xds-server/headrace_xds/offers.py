"""Assignments as xDS resources: what a GPU node is offered."""

import functools

import msgspec
from google.protobuf import json_format
from xds.type.v3.typed_struct_pb2 import TypedStruct

from headrace import ir, names
from headrace.assignment import Assignment, to_json
from headrace_xds.translate.resources import Resource, resource


def offer(served: ir.ServedVersion, attempt: int) -> Resource:
    """Resource that asks a node to hold a version; a higher attempt makes it a new one."""
    return _encoded(
        msgspec.json.encode(msgspec.structs.replace(served.assignment, attempt=attempt)),
        served.source,
    )


@functools.lru_cache(maxsize=16_384)
def _encoded(assignment_json: bytes, source: ir.Source) -> Resource:
    assignment = msgspec.json.decode(assignment_json, type=Assignment)
    message = TypedStruct(type_url=names.ASSIGNMENT_KIND)
    json_format.ParseDict(to_json(assignment), message.value)
    body: bytes = message.SerializeToString(deterministic=True)
    return resource(names.ASSIGNMENT_TYPE_URL, assignment.name, body, source)
