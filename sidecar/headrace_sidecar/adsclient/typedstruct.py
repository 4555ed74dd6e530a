"""JSON inside an ``xds.type.v3.TypedStruct``, the carrier of resources that have no .proto."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from xds.type.v3 import typed_struct_pb2

from headrace_sidecar.adsclient.messages import Received


@dataclass(frozen=True, slots=True)
class Decoded:
    """Kind of a resource and its JSON."""

    kind: str
    value: Mapping[str, Any]


def decode(resource: Received) -> Decoded | str:
    """JSON of a resource, or the reason why it has none."""
    if not resource.type_url.endswith("/xds.type.v3.TypedStruct"):
        return f"{resource.name}: {resource.type_url} is not a TypedStruct"
    try:
        message = typed_struct_pb2.TypedStruct.FromString(resource.body)
        return Decoded(message.type_url, json_format.MessageToDict(message.value))
    except (DecodeError, json_format.SerializeToJsonError) as error:
        return f"{resource.name}: not a TypedStruct: {error}"
