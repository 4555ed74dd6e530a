"""MiniLM-L6: a BERT encoder of six layers whose mean over tokens stands for a text.

Linear layers run in 32-bit floats or, where the file holds 8-bit weights, in integers with
activations quantised as they come.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from headrace_models.executors import buckets
from headrace_models.executors.linear8 import Linear8

LAYERS: Final = 6
WIDTH: Final = 384
HEADS: Final = 12
TOKENS: Final = 256
"""Tokens of a text that are read; the model was trained on no more."""
_EPSILON: Final = 1e-12
_CHARACTERS_PER_TOKEN: Final = 64
"""Text beyond this is cut before it is tokenised: words are longer than tokens, but not so long."""

Linear = Callable[[Tensor], Tensor]


class Encoder:
    """Texts in, unit vectors out."""

    def __init__(self, weights: str | Path, tokenizer: str | Path) -> None:
        self._weights = load_file(weights)
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.enable_truncation(TOKENS)
        self._tokenizer.no_padding()
        self._linear = {
            f"encoder.layer.{layer}.{name}": self._load(f"encoder.layer.{layer}.{name}")
            for layer in range(LAYERS)
            for name in (
                "attention.self.query",
                "attention.self.key",
                "attention.self.value",
                "attention.output.dense",
                "intermediate.dense",
                "output.dense",
            )
        }

    def __repr__(self) -> str:
        kinds = {type(linear).__name__ for linear in self._linear.values()}
        return f"Encoder({LAYERS} layers of {', '.join(sorted(kinds))})"

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, as many as are read."""
        cut = [text[: TOKENS * _CHARACTERS_PER_TOKEN] for text in texts]
        return [encoding.ids for encoding in self._tokenizer.encode_batch(cut)]

    @torch.inference_mode()
    def embed(self, tokens: Sequence[Sequence[int]], plan: Sequence[buckets.Bucket]) -> Tensor:
        """A unit vector for each text, computed bucket by bucket."""
        made = torch.empty(len(tokens), WIDTH)
        for bucket in plan:
            ids = torch.zeros(len(bucket.members), bucket.length, dtype=torch.long)
            lengths = [len(tokens[member]) for member in bucket.members]
            for row, member in enumerate(bucket.members):
                ids[row, : lengths[row]] = torch.tensor(tokens[member])
            made[list(bucket.members)] = self._encode(ids, torch.tensor(lengths))
        return made

    def _encode(self, ids: Tensor, lengths: Tensor) -> Tensor:
        count, longest = ids.shape
        real = torch.arange(longest) < lengths[:, None]
        # Where nothing is padded, attention without a mask takes a faster kernel.
        mask = None if bool(real.all()) else real[:, None, None]
        names = ("word_embeddings", "position_embeddings", "token_type_embeddings")
        word, position, kind = (self._weights[f"embeddings.{name}.weight"] for name in names)
        x = word[ids] + position[:longest] + kind[0]
        x = self._normalise(x, "embeddings.LayerNorm")
        for layer in range(LAYERS):
            x = self._layer(x, mask, f"encoder.layer.{layer}")
        total = (x * real[..., None]).sum(1)
        return functional.normalize(total / lengths[:, None], dim=-1).view(count, WIDTH)

    def _layer(self, x: Tensor, mask: Tensor | None, name: str) -> Tensor:
        count, longest, _ = x.shape
        query, key, value = (
            self._linear[f"{name}.attention.self.{part}"](x)
            .view(count, longest, HEADS, WIDTH // HEADS)
            .transpose(1, 2)
            for part in ("query", "key", "value")
        )
        seen = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        joined = seen.transpose(1, 2).reshape(count, longest, WIDTH)
        attended = self._linear[f"{name}.attention.output.dense"](joined)
        x = self._normalise(x + attended, f"{name}.attention.output.LayerNorm")
        wide = functional.gelu(self._linear[f"{name}.intermediate.dense"](x))
        return self._normalise(
            x + self._linear[f"{name}.output.dense"](wide), f"{name}.output.LayerNorm"
        )

    def _normalise(self, x: Tensor, name: str) -> Tensor:
        weight, bias = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        return functional.layer_norm(x, (WIDTH,), weight, bias, _EPSILON)

    def _load(self, name: str) -> Linear:
        bias = self._weights[f"{name}.bias"]
        quantized = self._weights.get(f"{name}.quantized")
        if quantized is not None:
            return Linear8(quantized, self._weights[f"{name}.scale"], bias)
        return Linear32(self._weights[f"{name}.weight"], bias)


class Linear32:
    """A linear layer in 32-bit floats."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self._weight, self._bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        """The layer's output."""
        return functional.linear(x, self._weight, self._bias)
