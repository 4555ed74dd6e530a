"""Forms of text that a pattern cannot tell: each a function to what is wrong, None when nothing.

A type of ``values`` names its form as ``Meta(extra={"form": name})``.
"""

import ipaddress
from collections.abc import Callable
from typing import Final

from headrace import limits
from headrace.units import parse_bytes, parse_duration_s

Form = Callable[[str], str | None]


def duration(text: str) -> str | None:
    """A duration up to the longest that any part of the mesh waits."""
    longest_s = limits.CONFIG_DURATION_S
    return f"longer than {longest_s:g} s" if parse_duration_s(text) > longest_s else None


def some_time(text: str) -> str | None:
    """A duration that is not nothing: to Envoy and Triton, 0 often means for ever."""
    shortest_s = limits.CONFIG_DURATION_MIN_S
    if parse_duration_s(text) < shortest_s:
        return f"shorter than {shortest_s * 1000:g} ms"
    return duration(text)


def size(text: str) -> str | None:
    """A number of bytes that still is one where numbers have 64 bits."""
    return "larger than 1024 TiB" if parse_bytes(text) > limits.CONFIG_SIZE_BYTES else None


def address(text: str) -> str | None:
    """An IP address: Envoy looks up no names for these."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return "not an IP address, such as 10.0.0.7 or ::1"
    return "not an address that other machines know: it has a scope" if "%" in str(found) else None


FORMS: Final[dict[str, Form]] = {
    "duration": duration,
    "some-time": some_time,
    "size": size,
    "address": address,
}
