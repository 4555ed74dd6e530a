"""Triton program of the vision executor: what a picture shows, by EfficientNet-Lite.

All pictures of a batch run in one pass. A bad picture fails its own request only.
"""

import numpy as np
import torch
import triton_python_backend_utils as pb_utils

from headrace_models.executors import images, parameters
from headrace_models.executors.classifier import Classifier


class TritonPythonModel:
    """One instance of the model."""

    def initialize(self, args):
        """Map the weights."""
        given = parameters.read(args["model_config"])
        torch.set_num_threads(int(given["threads"]))
        self._batches = parameters.batches(args["model_config"])
        self._classifier = Classifier.load(given["weights"], given["labels"], given["network"])
        pb_utils.Logger.log_info(f"{args['model_instance_name']}: {self._classifier}")

    def execute(self, requests):
        """Answer every request; the order of answers is the order of requests."""
        decoded = [self._decode(request) for request in requests]
        good = [pixels for pixels in decoded if not isinstance(pixels, images.BadImage)]
        answers = iter(self._classifier.classify(good))
        return [
            _refusal(pixels)
            if isinstance(pixels, images.BadImage)
            else self._response(next(answers))
            for pixels in decoded
        ]

    def _response(self, answer):
        outputs = {
            "labels": np.array(answer.labels, dtype=np.object_),
            "classes": answer.classes,
            "probabilities": answer.probabilities,
        }
        return pb_utils.InferenceResponse(
            output_tensors=[
                pb_utils.Tensor(name, rows if self._batches else rows[0])
                for name, rows in outputs.items()
            ]
        )

    def _decode(self, request):
        """Pixels of the request's pictures, or what is wrong with one of them."""
        elements = pb_utils.get_input_tensor_by_name(request, "image").as_numpy().ravel()
        try:
            return [self._classifier.decode(element) for element in elements]
        except images.BadImage as bad:
            return bad


def _refusal(bad):
    error = pb_utils.TritonError(f"image: {bad}", pb_utils.TritonError.INVALID_ARG)
    return pb_utils.InferenceResponse(error=error)
