"""Small shapes that every resource is made of."""

import datetime
from typing import Any as Json

import betterproto2
from envoy_data_plane.envoy.config.core.v3 import (
    AggregatedConfigSource,
    ApiVersion,
    ConfigSource,
    HeaderValue,
    HeaderValueOption,
    HeaderValueOptionHeaderAppendAction,
)
from envoy_data_plane.google.protobuf import Any
from xds.type.v3 import typed_struct_pb2

TYPED_STRUCT_URL = "type.googleapis.com/xds.type.v3.TypedStruct"


def seconds(number: float) -> datetime.timedelta:
    """Duration of so many seconds."""
    return datetime.timedelta(seconds=number)


def pack(message: betterproto2.Message) -> Any:
    """Message as an Any."""
    return Any.pack(message)


def typed_struct(type_name: str, value: dict[str, Json]) -> Any:
    """Extension that the authoring types do not know yet, by its name and JSON value."""
    struct = typed_struct_pb2.TypedStruct(type_url=f"type.googleapis.com/{type_name}")
    struct.value.update(value)
    return Any(type_url=TYPED_STRUCT_URL, value=struct.SerializeToString(deterministic=True))


def ads() -> ConfigSource:
    """The one source of everything; its bytes never vary, since Envoy compares them."""
    return ConfigSource(
        ads=AggregatedConfigSource(),
        initial_fetch_timeout=seconds(15),
        resource_api_version=ApiVersion.V3,
    )


def set_header(name: str, value: str) -> HeaderValueOption:
    """Header with exactly this value, whatever was there."""
    return HeaderValueOption(
        header=HeaderValue(key=name, value=value),
        append_action=HeaderValueOptionHeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD,
    )
