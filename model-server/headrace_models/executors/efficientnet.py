"""EfficientNet-Lite, for inference: batch normalisation is folded, convolutions carry a bias.

Lite means: no squeeze-and-excitation, ReLU6, and a stem and head that do not scale.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional

_STEM_CHANNELS: Final = 32
_CHANNEL_STEP: Final = 8
_FIXED_STAGES: Final = (0, 6)
"""Stages that are not repeated more often in deeper networks."""


@dataclass(frozen=True, slots=True)
class Variant:
    """Size of one member of the family."""

    width: float
    depth: float
    resolution: int


VARIANTS: Final = {
    "efficientnet-lite0": Variant(1.0, 1.0, 224),
    "efficientnet-lite1": Variant(1.0, 1.1, 240),
    "efficientnet-lite2": Variant(1.1, 1.2, 260),
}


@dataclass(frozen=True, slots=True)
class Stage:
    """Blocks of one shape, before scaling."""

    repeats: int
    kernel: int
    stride: int
    expansion: int
    channels: int


STAGES: Final = (
    Stage(1, 3, 1, 1, 16),
    Stage(2, 3, 2, 6, 24),
    Stage(2, 5, 2, 6, 40),
    Stage(3, 3, 2, 6, 80),
    Stage(3, 5, 1, 6, 112),
    Stage(4, 5, 2, 6, 192),
    Stage(1, 3, 1, 6, 320),
)


@dataclass(frozen=True, slots=True)
class Block:
    """One inverted residual: expand, filter each channel, project."""

    kernel: int
    stride: int
    expands: bool
    residual: bool


def blocks(variant: Variant) -> tuple[Block, ...]:
    """The variant's blocks in order."""
    made: list[Block] = []
    channels = _STEM_CHANNELS
    for index, stage in enumerate(STAGES):
        wide = scaled_channels(stage.channels, variant.width)
        fixed = index in _FIXED_STAGES
        repeats = stage.repeats if fixed else math.ceil(stage.repeats * variant.depth)
        for repeat in range(repeats):
            stride = stage.stride if repeat == 0 else 1
            residual = stride == 1 and channels == wide
            made.append(Block(stage.kernel, stride, stage.expansion != 1, residual))
            channels = wide
    return tuple(made)


def scaled_channels(channels: int, width: float) -> int:
    """Channels at a width: a multiple of 8, never more than 10 % below the exact number."""
    exact = channels * width
    rounded = int(exact + _CHANNEL_STEP / 2) // _CHANNEL_STEP * _CHANNEL_STEP
    made = max(_CHANNEL_STEP, rounded)
    return made + _CHANNEL_STEP if made < 0.9 * exact else made


class EfficientNet:
    """A network whose weights are mapped from a safetensors file."""

    def __init__(self, weights: Path, variant: Variant) -> None:
        self.variant = variant
        self._blocks = blocks(variant)
        self._weights = {
            name: tensor.contiguous(memory_format=torch.channels_last)
            if tensor.ndim == 4
            else tensor
            for name, tensor in load_file(weights).items()
        }

    def __repr__(self) -> str:
        return f"EfficientNet({len(self._blocks)} blocks at {self.variant.resolution} px)"

    @torch.inference_mode()
    def __call__(self, images: Tensor) -> Tensor:
        """Logits of normalised images ``[n, 3, resolution, resolution]``."""
        x = images.contiguous(memory_format=torch.channels_last)
        x = functional.relu6(self._convolve(x, "stem", stride=2))
        for index, block in enumerate(self._blocks):
            x = self._block(x, f"blocks.{index}", block)
        x = functional.relu6(self._convolve(x, "head")).mean((2, 3))
        return functional.linear(
            x, self._weights["classifier.weight"], self._weights["classifier.bias"]
        )

    def _block(self, x: Tensor, name: str, block: Block) -> Tensor:
        inner = x
        if block.expands:
            inner = functional.relu6(self._convolve(x, f"{name}.expand"))
        inner = self._convolve(
            inner, f"{name}.depthwise", stride=block.stride, groups=inner.shape[1]
        )
        inner = self._convolve(functional.relu6(inner), f"{name}.project")
        return x + inner if block.residual else inner

    def _convolve(self, x: Tensor, name: str, *, stride: int = 1, groups: int = 1) -> Tensor:
        weight, bias = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        kernel = weight.shape[-1]
        vertical, horizontal = (same_padding(size, kernel, stride) for size in x.shape[-2:])
        if vertical[0] == vertical[1] and vertical == horizontal:
            return functional.conv2d(x, weight, bias, stride, vertical[0], groups=groups)
        padded = functional.pad(x, (*horizontal, *vertical))
        return functional.conv2d(padded, weight, bias, stride, groups=groups)


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Zeros before and after, so that the output has ``ceil(size / stride)`` values."""
    total = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2
