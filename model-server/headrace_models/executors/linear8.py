"""A linear layer in 8-bit integers, with activations quantised as they come.

The kernel quantises a whole batch with one scale, which would let a text's neighbours change its
answer. So each token is scaled to its own largest value first, and one constant token makes the
kernel's range the same for every batch.
"""

import warnings
from typing import Final

import torch
from torch import Tensor

_ENGINE: Final = "fbgemm"
_TINY: Final = 1e-12


class Linear8:
    """Weights as int8 with one scale per output channel."""

    def __init__(self, quantized: Tensor, scale: Tensor, bias: Tensor) -> None:
        torch.backends.quantized.engine = _ENGINE
        with warnings.catch_warnings():
            # torch announces that the type will go; the kernels take their weights in no other,
            # and the torch version is pinned.
            warnings.simplefilter("ignore", UserWarning)
            zero_points = torch.zeros(len(scale), dtype=torch.long)
            weight = torch._make_per_channel_quantized_tensor(
                quantized, scale.double(), zero_points, 0
            )
            self._packed = torch.ops.quantized.linear_prepack(weight, None)
        self._bias = bias
        self._width = quantized.shape[1]
        self._range = torch.zeros(1, self._width)
        self._range[0, :2] = torch.tensor([-1.0, 1.0])

    def __call__(self, x: Tensor) -> Tensor:
        """The layer's output for tokens in the last dimension but one."""
        tokens = x.reshape(-1, self._width)
        largest = tokens.abs().amax(1, keepdim=True).clamp_min(_TINY)
        scaled = torch.cat((tokens / largest, self._range))
        # Seven bits of range: with eight, CPUs without VNNI would saturate their sums.
        made: Tensor = torch.ops.quantized.linear_dynamic(scaled, self._packed, True)
        return (made[:-1] * largest + self._bias).view(*x.shape[:-1], -1)
