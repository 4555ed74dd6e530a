"""From JPEG or PNG bytes to the pixels a network takes. Bounded: size, pixels, formats."""

import base64
import binascii
import io
import warnings
from typing import Final

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from headrace import limits

_FORMATS: Final = ("JPEG", "PNG")
_CROP: Final = 0.875
"""Part of the shorter side that is looked at."""
_MEAN: Final = 127.0
_SPREAD: Final = 128.0
_DATA_URI: Final = b"data:image/"


class BadImage(Exception):
    """What the caller sent is not an image that is served here."""


def image_bytes(element: bytes) -> bytes:
    """The image in an element: itself, or what its ``data:image/...;base64,`` URI holds.

    Tensors in JSON are text, so callers who use JSON send the URI.
    """
    if not element.startswith(_DATA_URI):
        return element
    head, comma, body = element.partition(b",")
    if not comma or not head.endswith(b";base64"):
        raise BadImage("a data URI must be base64: data:image/png;base64,...")
    try:
        return base64.b64decode(body, validate=True)
    except binascii.Error as error:
        raise BadImage(f"the data URI is not valid base64: {error}") from error


def decode(element: bytes, resolution: int) -> Tensor:
    """Normalised pixels ``[3, resolution, resolution]``; raises BadImage.

    The number of pixels is known from the header and checked before any pixel is decoded.
    """
    try:
        with warnings.catch_warnings():
            # Pillow warns about many odd files that it reads all the same.
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(image_bytes(element)), formats=_FORMATS) as image:
                _check_size(image)
                return _pixels(_upright(image, resolution), resolution)
    except BadImage:
        raise
    except UnidentifiedImageError as error:
        raise BadImage("it is neither a JPEG nor a PNG") from error
    except Exception as error:
        # Pillow raises whatever its decoders meet in a damaged file: OSError, SyntaxError,
        # ValueError, struct.error, zlib.error. To the caller all of them mean the same.
        raise BadImage(f"it cannot be decoded: {error}") from error


def _check_size(image: Image.Image) -> None:
    width, height = image.size
    if width * height > limits.IMAGE_PIXELS:
        raise BadImage(
            f"it has {width} x {height} pixels; at most {limits.IMAGE_PIXELS} are decoded"
        )


def _upright(image: Image.Image, resolution: int) -> Image.Image:
    """The middle of the image at the network's resolution."""
    # JPEG decodes at a fraction of its size where that still has enough pixels.
    image.draft("RGB", (2 * resolution, 2 * resolution))
    rgb = image.convert("RGB")
    side = min(rgb.size) * _CROP
    left, top = (rgb.width - side) / 2, (rgb.height - side) / 2
    return rgb.resize(
        (resolution, resolution),
        Image.Resampling.BICUBIC,
        box=(left, top, left + side, top + side),
    )


def _pixels(image: Image.Image, resolution: int) -> Tensor:
    raw = np.asarray(image, dtype=np.uint8).reshape(resolution, resolution, 3)
    return torch.from_numpy(raw.copy()).permute(2, 0, 1).float().sub_(_MEAN).div_(_SPREAD)
