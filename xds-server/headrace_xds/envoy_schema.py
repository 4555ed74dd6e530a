"""The protobuf schema of the Envoy that is installed, read out of its binary.

Published packages lag behind: they lack fields and whole files that this Envoy has. The binary
carries every file descriptor as plain bytes, so what it accepts can be decoded and printed exactly.
"""

import json
import mmap
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError, Message

from headrace_xds.translate.resources import SECRET

_REDACTED: Final = "[redacted]"
"""As Envoy's own admin page has it."""
_FILE_FIELDS: Final = frozenset({1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 14})
_NAME: Final = re.compile(rb"\x0a([\x05-\x7f])([a-z][\w/.\-]{3,120}?\.proto)(?=[\x12\x1a\x22\x62])")
_DESCRIPTOR_BYTES: Final = 2 * 2**20
"""Largest field of a file descriptor; a longer one is not a descriptor."""


class EnvoySchema:
    """Messages of one Envoy build."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        added: set[str] = set()
        for name in files:
            self._add(name, files, added)

    def message(self, type_name: str) -> Message:
        """Empty message of a type, such as ``envoy.config.cluster.v3.Cluster``."""
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(type_name))()

    def decode(self, type_url: str, body: bytes) -> Message:
        """Message of serialised bytes."""
        message = self.message(type_url.rpartition("/")[2])
        message.ParseFromString(body)
        return message

    def to_json(self, type_url: str, body: bytes) -> dict[str, Any]:
        """JSON value of serialised bytes, every Any inside it opened; nothing of secrets."""
        text = json_format.MessageToJson(
            self.decode(type_url, body),
            preserving_proto_field_name=True,
            descriptor_pool=self._pool,
        )
        value: dict[str, Any] = json.loads(text)
        if type_url == SECRET:
            value = {key: value[key] if key == "name" else _REDACTED for key in value}
        return value

    def from_json(self, type_name: str, value: Mapping[str, Any]) -> Message:
        """Message of a JSON value."""
        message = self.message(type_name)
        json_format.ParseDict(dict(value), message, descriptor_pool=self._pool)
        return message

    def _add(self, name: str, files: Mapping[str, bytes], added: set[str]) -> None:
        if name in added:
            return
        added.add(name)
        descriptor = descriptor_pb2.FileDescriptorProto.FromString(files[name])
        for dependency in descriptor.dependency:
            self._add(dependency, files, added)
        self._pool.Add(descriptor)


@cache
def read(binary: Path) -> EnvoySchema:
    """Schema of an Envoy binary; takes a fraction of a second."""
    with (
        binary.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        return EnvoySchema(_descriptors(content))


def _descriptors(content: mmap.mmap) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for found in _NAME.finditer(content):
        name = found.group(2)
        if found.group(1)[0] != len(name):
            continue
        candidate = content[found.start() : _end_of_descriptor(content, found.start())]
        try:
            descriptor_pb2.FileDescriptorProto.FromString(candidate)
        except DecodeError:
            continue
        if len(candidate) > len(files.get(name.decode(), b"")):
            files[name.decode()] = candidate
    return files


def _end_of_descriptor(content: mmap.mmap, start: int) -> int:
    """Where the fields of a file descriptor stop; nothing in the binary tells its length."""
    position = start
    while True:
        try:
            key, payload = _varint(content, position)
            number, kind = key >> 3, key & 7
            if number not in _FILE_FIELDS or (number == 1 and position != start):
                return position
            length, end = _varint(content, payload)
        except IndexError:
            return position
        if kind == 2 and length <= _DESCRIPTOR_BYTES:
            end += length
        elif kind != 0:
            return position
        position = end


def _varint(content: mmap.mmap, position: int) -> tuple[int, int]:
    number = 0
    for index in range(5):
        byte = content[position + index]
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return number, position + index + 1
    raise IndexError("no varint here")
