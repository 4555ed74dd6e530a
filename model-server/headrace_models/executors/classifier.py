"""Classifies pictures of many requests in one pass: what the vision model runs."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headrace_models.executors import images
from headrace_models.executors.efficientnet import VARIANTS, EfficientNet

TOP: Final = 5
"""Classes in an answer, most probable first."""
PICTURES_PER_PASS: Final = 32
"""Pictures of one forward pass: bounds the memory of a batch, whatever is asked."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The pictures of one request, one row each."""

    labels: list[list[bytes]]
    classes: NDArray[np.int64]
    probabilities: NDArray[np.float32]


class Classifier:
    """A network and the names of its classes."""

    def __init__(self, network: EfficientNet, names: Sequence[str]) -> None:
        self._network = network
        self._names = [name.encode() for name in names]

    def __repr__(self) -> str:
        return f"Classifier({self._network}, {len(self._names)} classes)"

    @classmethod
    def load(cls, weights: str, labels: str, network: str) -> "Classifier":
        """Classifier of the network with this name, from files."""
        names: list[str] = json.loads(Path(labels).read_text())
        return cls(EfficientNet(Path(weights), VARIANTS[network]), names)

    def decode(self, element: bytes) -> Tensor:
        """Pixels of one picture; raises ``images.BadImage``."""
        return images.decode(element, self._network.variant.resolution)

    def classify(self, requests: Sequence[Sequence[Tensor]]) -> list[Answer]:
        """An answer for each request, whose pictures are given as pixels."""
        pictures = [picture for request in requests for picture in request]
        if not pictures:
            return [self._answer(torch.empty(0, TOP), torch.empty(0, TOP).long())] * len(requests)
        passes = torch.split(torch.stack(pictures), PICTURES_PER_PASS)
        logits = torch.cat([self._network(pixels) for pixels in passes])
        probabilities, classes = torch.softmax(logits, -1).topk(TOP)
        sizes = [len(request) for request in requests]
        return [
            self._answer(*rows)
            for rows in zip(
                torch.split(probabilities, sizes), torch.split(classes, sizes), strict=True
            )
        ]

    def _answer(self, probabilities: Tensor, classes: Tensor) -> Answer:
        return Answer(
            labels=[[self._names[index] for index in row] for row in classes.tolist()],
            classes=classes.numpy(),
            probabilities=probabilities.numpy(),
        )
