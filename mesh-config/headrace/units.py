"""Text with units, parsed once at the edge: ``30s``, ``16GiB``; inside, seconds and bytes."""

import functools
import re
from typing import Final

DURATION_PATTERN: Final = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"
BYTES_PATTERN: Final = r"^[0-9]+(B|KiB|MiB|GiB|TiB)?$"

_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES: Final = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


@functools.lru_cache(maxsize=1_024)
def parse_duration_s(text: str) -> float:
    """Seconds in a duration such as ``250ms`` or ``1m30s``; ValueError when it is none."""
    if not re.fullmatch(DURATION_PATTERN, text):
        raise ValueError(f"not a duration: {text!r}; write it like 250ms, 30s or 1m30s")
    parts = _DURATION_PART.findall(text)
    return round(sum(float(number) * _SECONDS[unit] for number, unit in parts), 6)


def parse_bytes(text: str) -> int:
    """Bytes in a size such as ``16GiB``; ValueError when it is none."""
    if not re.fullmatch(BYTES_PATTERN, text):
        raise ValueError(f"not a size: {text!r}; write it like 512MiB or 16GiB")
    number = text.rstrip("BiKMGT")
    return int(number) * _BYTES[text[len(number) :] or "B"]
