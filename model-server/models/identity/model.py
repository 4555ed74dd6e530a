"""Triton program of the identity executor: answers with what it was sent, at Triton's own cost.

The parameter ``delay_ms`` makes it slow. With ``test_hooks`` set to ``on``, and only then, data
that begins with ``crash`` ends the process and data that begins with ``hang`` stops it for good.
"""

import os
import time

import triton_python_backend_utils as pb_utils

from headrace_models.executors import parameters

_HOOKS_READ_BYTES = 8


class TritonPythonModel:
    """One instance of the model."""

    def initialize(self, args):
        """Read the parameters."""
        given = parameters.read(args["model_config"])
        self._delay_s = float(given.get("delay_ms", "0")) / 1000
        self._hooks = given.get("test_hooks", "off") == "on"

    def execute(self, requests):
        """Answer each request with its own tensor, which stays in shared memory."""
        tensors = [pb_utils.get_input_tensor_by_name(request, "data") for request in requests]
        if self._hooks:
            for tensor in tensors:
                _obey(_beginning(tensor))
        if self._delay_s:
            time.sleep(self._delay_s)
        return [pb_utils.InferenceResponse(output_tensors=[tensor]) for tensor in tensors]


def _beginning(tensor):
    values = tensor.as_numpy().ravel()[:_HOOKS_READ_BYTES]
    if values.dtype == object:
        return bytes(values[0]) if len(values) else b""
    return values.tobytes()


def _obey(data):
    if data.startswith(b"crash"):
        os._exit(1)
    while data.startswith(b"hang"):
        time.sleep(1)
