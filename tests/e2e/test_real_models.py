"""Both real models, two versions each, in the real tritonserver."""

import base64
import importlib.util
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import msgspec
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from headrace import limits, names
from headrace.assignment import Assignment
from headrace_models import leftovers
from headrace_models.layout import layout
from tests.fakes import model_server
from tests.fakes.model_server import ModelServer, assigned, infer_request, outputs

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

EVERY = list(model_server.ARTIFACTS)
IDS = [f"{model}-{version}" for model, version in EVERY]
READY_S = 120.0
STUB_RSS_BYTES = 600 * 2**20
QUERY = b"CUDA OOM when serving"
DOCUMENTS = [
    b"GPU memory ran out while loading the model",
    b"How to bake sourdough bread",
    b"Out of memory error in CUDA kernels",
    b"The cat sat on the mat",
    b"Recipe for a simple tomato soup with basil",
    b"What is the largest planet in the solar system?",
]
RELEVANT = {0, 2}


def photo(name: str) -> bytes:
    """A photo of scikit-image's."""
    spec = importlib.util.find_spec("skimage")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return (Path(spec.submodule_search_locations[0]) / "data" / f"{name}.png").read_bytes()


def together(model: str, version: int) -> Assignment:
    """A version that waits long enough for every request of a test to share a batch."""
    plain = assigned(model, version)
    batching = msgspec.structs.replace(plain.batching, max_queue_delay_s=0.3)
    return msgspec.structs.replace(plain, batching=batching)


class Loaded:
    """A model server with every version loaded, and how that went."""

    def __init__(self, server: ModelServer) -> None:
        self.server = server
        self.golden: dict[tuple[str, int], dict[str, Any]] = {}
        self.seconds: dict[tuple[str, int], float] = {}
        for key in EVERY:
            began_s = time.monotonic()
            self.golden[key] = server.load(together(*key))
            self.seconds[key] = time.monotonic() - began_s

    def ask(self, model: str, version: int, inputs: dict[str, list[bytes]]) -> dict[str, Any]:
        return outputs(self.infer(infer_request(assigned(model, version), inputs)))

    def infer(self, request: Any) -> Any:
        with self.server.client() as stub:
            return stub.ModelInfer(request, timeout=60)

    def ask_all(self, requests: Sequence[Any]) -> list[Any]:
        """Answers or errors of requests sent at one moment."""
        with self.server.client() as stub:
            calls = [stub.ModelInfer.future(request, timeout=60) for request in requests]
            return [call.exception() or outputs(call.result()) for call in calls]

    def executions(self, model: str, version: int) -> tuple[int, int]:
        """Requests and executions so far."""
        asked = pb.ModelStatisticsRequest(name=names.triton_model(model, version))
        with self.server.client() as stub:
            statistics = stub.ModelStatistics(asked, timeout=5).model_stats[0]
        return statistics.inference_count, statistics.execution_count


@pytest.fixture(scope="module")
def loaded() -> Iterator[Loaded]:
    with model_server.running_model_server() as server:
        yield Loaded(server)


@pytest.mark.parametrize(("model", "version"), EVERY, ids=IDS)
def test_the_golden_answer_is_what_the_version_answers(
    loaded: Loaded, model: str, version: int
) -> None:
    golden = loaded.golden[model, version]
    assignment = assigned(model, version)
    got = outputs(loaded.infer(model_server.golden_request(assignment, golden)))
    for check in golden["checks"]:
        value = got[check["output"]][check["index"]]
        if "near" in check:
            assert abs(float(value) - check["near"]) <= check["tolerance"], (check, value)
        else:
            text = value.decode() if isinstance(value, bytes) else int(value)
            assert text == check["equals"]


def test_versions_load_in_time_and_in_memory(loaded: Loaded) -> None:
    server = loaded.server
    stubs = leftovers.find(layout(server.folder, server.folder / "agent.sock").shm_prefix)
    sizes = {pid: resident_bytes(pid) for pid in stubs}
    print({key: round(took_s, 2) for key, took_s in loaded.seconds.items()})
    print({pid: f"{size / 2**20:.0f} MiB" for pid, size in sizes.items()})
    assert len(stubs) == 1 + len(EVERY)
    assert sum(loaded.seconds.values()) < READY_S
    assert max(sizes.values()) < STUB_RSS_BYTES


@pytest.mark.parametrize("version", [1, 2])
def test_a_photo_of_coffee_shows_an_espresso(loaded: Loaded, version: int) -> None:
    got = loaded.ask("vision", version, {"image": [photo("coffee")]})
    assert got["labels"][0] == b"espresso"
    assert list(got["probabilities"]) == sorted(got["probabilities"], reverse=True)
    assert 0.4 < got["probabilities"][0] < 1
    assert len(got["labels"]) == len(got["classes"]) == 5


def test_the_versions_of_vision_differ_on_a_photo_of_a_cat(loaded: Loaded) -> None:
    cat = {"image": [photo("chelsea")]}
    first, second = (loaded.ask("vision", version, cat)["labels"][0] for version in (1, 2))
    assert (first, second) == (b"a cat having a striped coat", b"Egyptian Mau")


@pytest.mark.parametrize("version", [1, 2])
def test_relevant_documents_come_first(loaded: Loaded, version: int) -> None:
    scores = loaded.ask("ranking", version, {"query": [QUERY], "documents": DOCUMENTS})["scores"]
    assert set(np.argsort(scores)[::-1][: len(RELEVANT)]) == RELEVANT


def test_the_versions_of_ranking_differ_on_documents_that_do_not_matter(loaded: Loaded) -> None:
    asked = {"query": [QUERY], "documents": DOCUMENTS}
    first, second = (loaded.ask("ranking", version, asked)["scores"] for version in (1, 2))
    cat, soup = 3, 4
    assert first[soup] > first[cat]
    assert second[soup] < second[cat]
    assert np.abs(first - second).max() < 0.05


def test_a_data_uri_is_the_image_it_holds(loaded: Loaded) -> None:
    uri = b"data:image/png;base64," + base64.b64encode(photo("coffee"))
    plain = loaded.ask("vision", 1, {"image": [photo("coffee")]})
    assert np.array_equal(
        loaded.ask("vision", 1, {"image": [uri]})["probabilities"], plain["probabilities"]
    )


@pytest.mark.parametrize(
    ("element", "words"),
    [
        (b"", "neither a JPEG nor a PNG"),
        (b"\x89PNG\r\n\x1a\n broken", "image"),
        (b"data:image/png,abc", "must be base64"),
        (b"data:image/png;base64,***", "not valid base64"),
        (b"GIF89a" + b"\0" * 40, "neither a JPEG nor a PNG"),
    ],
    ids=["nothing", "a broken PNG", "a URI without base64", "bad base64", "a GIF"],
)
def test_a_bad_image_is_the_callers_fault(loaded: Loaded, element: bytes, words: str) -> None:
    with pytest.raises(grpc.RpcError, match=words) as refused:
        loaded.ask("vision", 1, {"image": [element]})
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_bad_image_leaves_its_batch_mates_alone(loaded: Loaded) -> None:
    assignment = assigned("vision", 1)
    coffee = infer_request(assignment, {"image": [photo("coffee")]})
    bad = infer_request(assignment, {"image": [b"no image"]})
    before = loaded.executions("vision", 1)
    first, error, last = loaded.ask_all([coffee, bad, coffee])
    after = loaded.executions("vision", 1)
    assert first["labels"][0] == last["labels"][0] == b"espresso"
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert after[1] - before[1] == 1, "the three did not share a batch"


@pytest.mark.parametrize("version", [1, 2])
def test_a_ranking_does_not_depend_on_who_shares_the_batch(loaded: Loaded, version: int) -> None:
    assignment = assigned("ranking", version)
    sizes = [1, 6, 2, 5, 3]
    requests = [
        infer_request(assignment, {"query": [QUERY], "documents": (DOCUMENTS * 2)[:size]})
        for size in sizes
    ]
    before = loaded.executions("ranking", version)
    answers = loaded.ask_all(requests)
    count, executed = (
        now - then for now, then in zip(loaded.executions("ranking", version), before, strict=True)
    )
    assert executed < count == len(sizes)
    alone = outputs(loaded.infer(requests[1]))["scores"]
    for answer, size in zip(answers, sizes, strict=True):
        assert np.allclose(answer["scores"], alone[:size], atol=1e-5)


def test_no_documents_have_no_scores_and_batch_mates_have_theirs(loaded: Loaded) -> None:
    assignment = assigned("ranking", 1)
    nothing = infer_request(assignment, {"query": [QUERY], "documents": []})
    something = infer_request(assignment, {"query": [QUERY], "documents": DOCUMENTS})
    empty, full = loaded.ask_all([nothing, something])
    assert len(empty["scores"]) == 0
    assert len(full["scores"]) == len(DOCUMENTS)


def test_versions_without_batching_answer_without_a_batch_dimension(loaded: Loaded) -> None:
    for model, inputs in (
        ("vision", {"image": [photo("coffee")]}),
        ("ranking", {"query": [QUERY], "documents": DOCUMENTS}),
    ):
        plain = assigned(model, 1)
        batching = msgspec.structs.replace(plain.batching, max_batch_size=0)
        single = msgspec.structs.replace(plain, model=f"single-{model}", batching=batching)
        loaded.server.load(single)
        request = infer_request(single, inputs)
        for tensor in request.inputs:
            del tensor.shape[0]
        response = loaded.infer(request)
        shapes = {tensor.name: list(tensor.shape) for tensor in response.outputs}
        assert set(map(tuple, shapes.values())) == {(5,) if model == "vision" else (6,)}
        with loaded.server.client() as stub:
            name = names.triton_model(single.model, 1)
            stub.RepositoryModelUnload(pb.RepositoryModelUnloadRequest(model_name=name))


def test_too_many_documents_are_refused(loaded: Loaded) -> None:
    too_many = {"query": [QUERY], "documents": [b"x"] * (limits.DOCUMENTS + 1)}
    with pytest.raises(grpc.RpcError, match=f"at most {limits.DOCUMENTS} documents") as refused:
        loaded.ask("ranking", 1, too_many)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_text_that_is_not_utf8_is_refused(loaded: Loaded) -> None:
    with pytest.raises(grpc.RpcError, match="UTF-8") as refused:
        loaded.ask("ranking", 1, {"query": [b"\xff"], "documents": [b"x"]})
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_most_computed_tokens_are_useful(loaded: Loaded) -> None:
    texts = [b"word " * length for length in (3, 8, 20, 45, 90, 180)] * 3
    loaded.ask("ranking", 1, {"query": [QUERY], "documents": texts})
    label = 'model="ranking",version="1"'
    page = loaded.server.metrics()
    ratio = metric(page, "headrace_useful_token_ratio", label)
    useful = metric(page, "headrace_useful_tokens_total", label)
    computed = metric(page, "headrace_computed_tokens_total", label)
    print(f"useful tokens: {ratio:.3f}")
    assert ratio == pytest.approx(useful / computed)
    assert ratio > 0.8


def metric(page: str, name: str, labels: str) -> float:
    for line in page.splitlines():
        found = re.fullmatch(rf"{name}\{{(.*)\}} (\S+)", line)
        if found and sorted(found[1].split(",")) == sorted(labels.split(",")):
            return float(found[2])
    raise AssertionError(f"{name}{{{labels}}} is not in:\n{page}")


def resident_bytes(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", text)
    assert found is not None
    return int(found[1]) * 1024
