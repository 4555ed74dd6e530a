"""JSON Schema of the mesh language, for editors: made from the types, never by hand."""

from typing import Any

import msgspec

from headrace.config import schema


def mesh_schema() -> dict[str, Any]:
    """One schema for any object, told apart by ``kind``."""
    made = msgspec.json.schema(schema.Object)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Headrace {schema.API_VERSION}",
        **made,
    }


def render() -> bytes:
    """The schema as the file in ``mesh-config/schema`` has it."""
    return msgspec.json.format(msgspec.json.encode(mesh_schema(), order="sorted"), indent=2) + b"\n"
