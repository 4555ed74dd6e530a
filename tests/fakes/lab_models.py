"""Small models with one fault or habit each, for a real Triton in tests."""

from headrace.assignment import Assignment
from tests.fakes.front_door import assigned, pbtxt
from tests.fakes.triton_process import IDENTITY, TritonProcess, write_model

DTYPES = ("BOOL", "UINT8", "INT8", "INT32", "INT64", "FP16", "FP32", "FP64", "BYTES")

ECHOES = {
    datatype: assigned(f"echo-{datatype.lower()}", {"data": (datatype, (-1,))}, idempotent=True)
    for datatype in DTYPES
}
"""A model for each datatype that returns its one-dimensional input."""

PAIR = assigned("pair", {"a": ("FP32", (2,)), "b": ("INT32", (-1,))}, max_batch_size=4)
"""Two inputs, in batches."""

LINE = assigned("line", {"data": ("BYTES", (1,))})
"""One string."""

WORD = assigned("word", {"data": ("BYTES", (1,))}, max_batch_size=4)
"""One string, in batches."""

SLOW = assigned("slow", {"data": ("INT32", (1,))})
"""Works for so many milliseconds unless it is cancelled; counts both in ``slow.log``."""

CRASH = assigned("crash", {"data": ("INT32", (1,))})
"""Its process dies when asked with 1."""

MANY = assigned("many", {"count": ("INT32", (2,))}, {"data": ("UINT8", (-1,))})
"""Decoupled: so many answers of so many bytes."""

_SLOW_CODE = """
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.log = args["model_repository"] + "/../../slow.log"
        open(self.log, "a").close()

    def note(self, what):
        with open(self.log, "a") as log:
            log.write(what + "\\n")

    def execute(self, requests):
        responses = []
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "data")
            until = time.monotonic() + int(tensor.as_numpy()[0]) / 1000
            self.note("began")
            while time.monotonic() < until and not request.is_cancelled():
                time.sleep(0.01)
            if request.is_cancelled():
                self.note("cancelled")
                error = pb_utils.TritonError("cancelled", pb_utils.TritonError.CANCELLED)
                responses.append(pb_utils.InferenceResponse(error=error))
            else:
                self.note("finished")
                output = pb_utils.Tensor("data", tensor.as_numpy())
                responses.append(pb_utils.InferenceResponse([output]))
        return responses
"""

_CRASH_CODE = IDENTITY.replace(
    "        responses = []\n",
    """        import os
        for request in requests:
            if pb_utils.get_input_tensor_by_name(request, "data").as_numpy()[0] == 1:
                os._exit(7)
        responses = []
""",
)

_MANY_CODE = """
import numpy
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            count, size = pb_utils.get_input_tensor_by_name(request, "count").as_numpy()
            sender = request.get_response_sender()
            for number in range(count):
                data = numpy.full(size, number % 256, numpy.uint8)
                output = pb_utils.Tensor("data", data)
                sender.send(pb_utils.InferenceResponse([output]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

ALL = (*ECHOES.values(), PAIR, LINE, WORD, SLOW, CRASH, MANY)
"""Everything that ``install`` loads."""

_CODE = {SLOW.model: _SLOW_CODE, CRASH.model: _CRASH_CODE, MANY.model: _MANY_CODE}
_EXTRA = {MANY.model: "model_transaction_policy { decoupled: true }\n"}


def install(triton: TritonProcess) -> None:
    """Write every model and load it."""
    install_only(triton, *ALL)


def install_only(triton: TritonProcess, *models: Assignment) -> None:
    """Write some models and load them."""
    for one in models:
        config = pbtxt(one, _EXTRA.get(one.model, ""))
        write_model(triton.repository, f"{one.model}.1", config, _CODE.get(one.model, IDENTITY))
    triton.load(*(f"{one.model}.1" for one in models))
