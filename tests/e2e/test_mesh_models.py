"""Real models through the whole mesh, asked by the clients that people use."""

import asyncio
import json
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy
import pytest
import skimage.data
import tritonclient.grpc
import tritonclient.http

from headrace_xds.cli.up import curl
from headrace_xds.local.mesh import LocalMesh
from tests.fakes.echo_mesh import stats
from tests.fakes.load import Call, send_all

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


# Made anew for each call: the HTTP client writes into the headers it is given.
def key() -> dict[str, str]:
    return {"x-api-key": "demo"}


PHOTO = Path(skimage.data.__file__).with_name("coffee.png")
CAT = Path(skimage.data.__file__).with_name("chelsea.png")
QUERY = "CUDA out of memory when serving"
DOCUMENTS = [
    "How to bake sourdough bread",
    "GPU memory ran out while loading the model",
    "Kubernetes pod eviction and node pressure",
    "The history of the water wheel",
]
MEMORY_GIB = 12.0


def image(path: Path) -> "numpy.ndarray[Any, Any]":
    return numpy.array([[path.read_bytes()]], dtype=numpy.object_)


def address(mesh: LocalMesh, region: str = "eu") -> str:
    return mesh.gateway(f"gw-{region}").url.removeprefix("http://")


def classify_http(mesh: LocalMesh, path: Path, version: str = "") -> tuple[list[str], list[float]]:
    tensor = tritonclient.http.InferInput("image", [1, 1], "BYTES")
    tensor.set_data_from_numpy(image(path), binary_data=True)
    with tritonclient.http.InferenceServerClient(address(mesh)) as client:
        result = client.infer("vision", [tensor], model_version=version, headers=key())
    labels = [label.decode() for label in result.as_numpy("labels")[0]]
    return labels, [float(p) for p in result.as_numpy("probabilities")[0]]


def classify_grpc(mesh: LocalMesh, path: Path, version: str = "") -> tuple[list[str], list[float]]:
    tensor = tritonclient.grpc.InferInput("image", [1, 1], "BYTES")
    tensor.set_data_from_numpy(image(path))
    with tritonclient.grpc.InferenceServerClient(address(mesh)) as client:
        result = client.infer("vision", [tensor], model_version=version, headers=key())
        assert result.get_response().model_name == "vision"
    labels = [label.decode() for label in result.as_numpy("labels")[0]]
    return labels, [float(p) for p in result.as_numpy("probabilities")[0]]


def rank_http(mesh: LocalMesh, version: str = "", region: str = "eu") -> list[float]:
    query = tritonclient.http.InferInput("query", [1, 1], "BYTES")
    query.set_data_from_numpy(numpy.array([[QUERY.encode()]], dtype=numpy.object_))
    documents = tritonclient.http.InferInput("documents", [1, len(DOCUMENTS)], "BYTES")
    texts = [document.encode() for document in DOCUMENTS]
    documents.set_data_from_numpy(numpy.array([texts], dtype=numpy.object_))
    with tritonclient.http.InferenceServerClient(address(mesh, region)) as client:
        result = client.infer("ranking", [query, documents], model_version=version, headers=key())
    return [float(score) for score in result.as_numpy("scores")[0]]


def rank_grpc(mesh: LocalMesh, version: str = "", region: str = "eu") -> list[float]:
    query = tritonclient.grpc.InferInput("query", [1, 1], "BYTES")
    query.set_data_from_numpy(numpy.array([[QUERY.encode()]], dtype=numpy.object_))
    documents = tritonclient.grpc.InferInput("documents", [1, len(DOCUMENTS)], "BYTES")
    texts = [document.encode() for document in DOCUMENTS]
    documents.set_data_from_numpy(numpy.array([texts], dtype=numpy.object_))
    with tritonclient.grpc.InferenceServerClient(address(mesh, region)) as client:
        result = client.infer("ranking", [query, documents], model_version=version, headers=key())
    return [float(score) for score in result.as_numpy("scores")[0]]


async def stream(mesh: LocalMesh) -> list[str]:
    """Two requests on one ModelStreamInfer stream, the model named in a header."""
    answers: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def take(result: object, error: object) -> None:
        text = str(error) if error else result.get_response().id  # type: ignore[attr-defined]
        loop.call_soon_threadsafe(answers.put_nowait, text)

    def ask(client: tritonclient.grpc.InferenceServerClient) -> None:
        tensor = tritonclient.grpc.InferInput("image", [1, 1], "BYTES")
        tensor.set_data_from_numpy(image(PHOTO))
        client.start_stream(take, headers={**key(), "headrace-model": "vision"})
        for number in ("a", "b"):
            client.async_stream_infer("vision", [tensor], request_id=number)

    with tritonclient.grpc.InferenceServerClient(address(mesh)) as client:
        await asyncio.to_thread(ask, client)
        found = [await asyncio.wait_for(answers.get(), 30) for _ in range(2)]
        await asyncio.to_thread(client.stop_stream)
    return sorted(found)


def test_curl_classifies_a_photo(local: LocalMesh) -> None:
    done = subprocess.run(
        [
            *("curl", "-sS", "--fail-with-body", "-H", "x-api-key: demo"),
            *("-H", "inference-header-content-length: 0", "--data-binary", f"@{PHOTO}"),
            local.gateway("gw-eu").url + "/v2/models/vision/infer",
        ],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert b"espresso" in done.stdout


def test_the_line_that_up_prints_works(local: LocalMesh) -> None:
    line = curl(local.gateway("gw-eu").url)
    done = subprocess.run(["bash", "-c", line], capture_output=True, check=True)
    (scores,) = (output["data"] for output in json.loads(done.stdout)["outputs"])
    assert scores[0] > scores[1], "turbines are about water, not about bread"


def test_curl_ranks_documents(local: LocalMesh) -> None:
    tensors = [
        {"name": "query", "datatype": "BYTES", "shape": [1, 1], "data": [QUERY]},
        {"name": "documents", "datatype": "BYTES", "shape": [1, 4], "data": DOCUMENTS},
    ]
    done = subprocess.run(
        [
            *("curl", "-sS", "--fail-with-body", "-H", "x-api-key: demo"),
            *("-d", json.dumps({"inputs": tensors})),
            local.gateway("gw-us").url + "/v2/models/ranking/infer",
        ],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    answer = json.loads(done.stdout)
    scores = next(output for output in answer["outputs"] if output["name"] == "scores")["data"]
    assert max(scores) == scores[1]
    assert answer["model_name"] == "ranking"


@pytest.mark.parametrize("classify", [classify_http, classify_grpc], ids=["http", "grpc"])
def test_versions_agree_on_an_easy_photo_and_differ_in_detail(
    local: LocalMesh, classify: type
) -> None:
    first, first_probabilities = classify(local, PHOTO, "1")
    second, second_probabilities = classify(local, PHOTO, "2")
    assert first[0] == second[0] == "espresso"
    assert first_probabilities != second_probabilities
    assert classify(local, CAT, "1")[1] != classify(local, CAT, "2")[1]


def test_both_protocols_give_the_same_answer(local: LocalMesh) -> None:
    assert classify_http(local, CAT, "1") == classify_grpc(local, CAT, "1")


def test_int8_ranks_as_f32_does_and_scores_otherwise(local: LocalMesh) -> None:
    f32, int8 = rank_http(local, "1"), rank_http(local, "2", region="us")
    order = sorted(range(len(DOCUMENTS)), key=f32.__getitem__, reverse=True)
    assert order[0] == 1
    assert max(range(len(DOCUMENTS)), key=int8.__getitem__) == 1
    assert f32 != int8
    assert f32 == pytest.approx(int8, abs=0.1)
    assert rank_grpc(local, "1", region="us") == pytest.approx(f32, abs=1e-5)
    assert rank_grpc(local, "2") == pytest.approx(int8, abs=1e-5)


async def test_a_stream_is_routed_by_its_header(local: LocalMesh) -> None:
    assert await stream(local) == ["a", "b"]


def test_metadata_ready_and_statistics_answer_over_both_protocols(local: LocalMesh) -> None:
    with tritonclient.http.InferenceServerClient(address(local)) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("vision")
        metadata = client.get_model_metadata("vision", headers=key())
        assert [tensor["name"] for tensor in metadata["inputs"]] == ["image"]
        assert client.get_model_config("vision", headers=key())["max_batch_size"] == 8
        assert client.get_inference_statistics("vision", headers=key())["model_stats"]
    with tritonclient.grpc.InferenceServerClient(address(local)) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("vision")
        assert client.get_model_metadata("vision", headers=key()).name == "vision"
        assert client.get_model_config("vision", headers=key()).config.max_batch_size == 8


async def test_what_only_a_model_can_refuse_has_no_node_ejected(local: LocalMesh) -> None:
    def count() -> int:
        found = stats(local, "gw-eu", "cluster.*outlier_detection.ejections")
        return sum(n for name, n in found.items() if name.endswith("enforced_total"))

    before = count()
    bad = {
        "vision": {"image": b"no picture"},
        "ranking": {"query": b"\xff\xfe", "documents": b"a text"},
    }
    for model, tensors in bad.items():
        raw = b"".join(struct.pack("<I", len(data)) + data for data in tensors.values())
        inputs = [
            {
                "name": name,
                "datatype": "BYTES",
                "shape": [1, 1],
                "parameters": {"binary_data_size": len(data) + 4},
            }
            for name, data in tensors.items()
        ]
        head = json.dumps({"inputs": inputs}).encode()
        fields = {**key(), "inference-header-content-length": str(len(head))}
        call = Call(f"/v2/models/{model}/infer", head + raw, fields)
        traffic = await send_all(local.gateway("gw-eu").url, [call] * 12)
        assert traffic.statuses == {400: 12}, traffic.answers[0].body
    assert count() == before


def test_the_whole_mesh_fits_a_laptop(local: LocalMesh) -> None:
    total_kib = 0
    for program in local.plan.programs:
        total_kib += sum(map(_pss_kib, local.pids(program.name)))
    assert 0 < total_kib / 2**20 < MEMORY_GIB


def _pss_kib(pid: int) -> int:
    """Memory of a process, what it shares counted in parts."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
