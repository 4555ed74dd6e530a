"""What Triton tells a model when it starts: its parameters, and which model version it is. Pure."""

import json
from collections.abc import Mapping


def read(config: str) -> dict[str, str]:
    """Parameters in a model's configuration, as Triton hands it to its program."""
    parameters = json.loads(config).get("parameters", {})
    return {name: value["string_value"] for name, value in parameters.items()}


def batches(config: str) -> bool:
    """Whether tensors have a batch dimension before the declared ones."""
    return bool(json.loads(config).get("max_batch_size", 0))


def labels(triton_model: str) -> Mapping[str, str]:
    """Labels of the model version's metrics, by its name in Triton."""
    model, _, version = triton_model.rpartition(".")
    return {"model": model, "version": version}
