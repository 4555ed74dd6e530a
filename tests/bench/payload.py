"""The requests that are sent: one tensor of bytes, as the Open Inference Protocol carries it."""

import json
from typing import Final

from tritonclient.grpc import service_pb2

KEY: Final = "demo"
SIZES: Final = {"1 KB": 1_000, "150 KB": 150_000, "10 MB": 10_000_000}


def http_request(host: str, model: str, size: int) -> bytes:
    """A whole HTTP request with a binary tensor, answered with one."""
    tensor = {
        "name": "data",
        "datatype": "UINT8",
        "shape": [size],
        "parameters": {"binary_data_size": size},
    }
    output = {"name": "data", "parameters": {"binary_data": True}}
    head = json.dumps({"inputs": [tensor], "outputs": [output]}).encode()
    lines = (
        f"POST /v2/models/{model}/infer HTTP/1.1",
        f"host: {host}",
        f"x-api-key: {KEY}",
        "content-type: application/octet-stream",
        f"inference-header-content-length: {len(head)}",
        f"content-length: {len(head) + size}",
        "",
        "",
    )
    return "\r\n".join(lines).encode() + head + bytes(size)


def grpc_request(model: str, size: int) -> bytes:
    """An encoded ``ModelInferRequest``."""
    request = service_pb2.ModelInferRequest(model_name=model)
    tensor = request.inputs.add(name="data", datatype="UINT8")
    tensor.shape.append(size)
    request.raw_input_contents.append(bytes(size))
    encoded: bytes = request.SerializeToString()
    return encoded
