"""The networks and their surroundings, without Triton."""

import base64
import io
import struct
import zlib
from pathlib import Path

import efficientnet_lite_pytorch
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import load_file

from headrace import limits
from headrace_models import golden, recipes
from headrace_models.artifacts import ARTIFACTS, locate
from headrace_models.executors import buckets, images, parameters, ranking
from headrace_models.executors.classifier import PICTURES_PER_PASS, Classifier
from headrace_models.executors.efficientnet import VARIANTS, EfficientNet, same_padding
from headrace_models.executors.linear8 import Linear8

LENGTHS = st.lists(st.integers(1, 300), max_size=60)


def encoded(kind: str, size: tuple[int, int], mode: str = "RGB") -> bytes:
    out = io.BytesIO()
    Image.new(mode, size, 128 if mode == "L" else None).save(out, kind)
    return out.getvalue()


def png_header(width: int, height: int) -> bytes:
    """A PNG that promises so many pixels and holds none."""
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))


@pytest.mark.parametrize(
    "element",
    [
        encoded("PNG", (300, 200)),
        encoded("PNG", (1, 1)),
        encoded("PNG", (200, 300), "L"),
        encoded("PNG", (64, 64), "P"),
        encoded("PNG", (64, 64), "RGBA"),
        encoded("JPEG", (900, 700)),
        encoded("JPEG", (64, 64), "CMYK"),
    ],
    ids=["PNG", "one pixel", "grey", "palette", "with alpha", "JPEG", "CMYK"],
)
def test_every_common_picture_becomes_pixels(element: bytes) -> None:
    pixels = images.decode(element, 224)
    assert pixels.shape == (3, 224, 224)
    assert -1 <= pixels.min() <= pixels.max() <= 1


def test_more_pixels_than_the_limit_are_refused_before_they_are_decoded() -> None:
    side = int(limits.IMAGE_PIXELS**0.5)
    with pytest.raises(images.BadImage, match="at most"):
        images.decode(png_header(side + 1, side + 1) + b"\0\0\0\1IDAT", 224)


@pytest.mark.parametrize(
    "element",
    [
        b"",
        b"GIF89a",
        png_header(4, 4),
        png_header(4, 4)[:20],
        encoded("JPEG", (64, 64))[:200],
        encoded("TIFF", (8, 8)),
        b"data:image/png;base64,AAA",
        b"data:image/png,AAAA",
        b"data:image/png;base64",
    ],
)
def test_what_is_no_picture_is_refused_as_such(element: bytes) -> None:
    with pytest.raises(images.BadImage):
        images.decode(element, 224)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_as_no_picture(element: bytes) -> None:
    with pytest.raises(images.BadImage):
        images.decode(png_header(4, 4) + element, 224)


def test_a_data_uri_is_the_picture_it_holds() -> None:
    picture = golden.crossword()
    uri = b"data:image/png;base64," + base64.b64encode(picture)
    assert images.image_bytes(uri) == picture
    assert images.image_bytes(picture) == picture


@given(LENGTHS)
def test_buckets_hold_every_text_once_within_the_bound(lengths: list[int]) -> None:
    plan = buckets.plan(lengths)
    members = [member for bucket in plan for member in bucket.members]
    assert sorted(members) == list(range(len(lengths)))
    for bucket in plan:
        assert bucket.length == max(lengths[member] for member in bucket.members)
        padded = bucket.length * len(bucket.members)
        assert padded <= buckets.TOKENS_PER_PASS or len(bucket.members) == 1


@given(LENGTHS)
def test_buckets_never_compute_more_than_one_batch_would(lengths: list[int]) -> None:
    grouped = buckets.count(buckets.plan(lengths), lengths)
    together = buckets.count(buckets.one(lengths), lengths)
    assert grouped.useful == together.useful <= grouped.computed
    assert grouped.computed <= together.computed


def test_texts_of_mixed_length_waste_little() -> None:
    lengths = [5, 12, 30, 70, 150, 250] * 10
    assert buckets.count(buckets.plan(lengths), lengths).ratio > 0.95
    assert buckets.count(buckets.one(lengths), lengths).ratio < 0.5


def test_an_answer_in_eight_bits_does_not_depend_on_batch_mates() -> None:
    random = np.random.default_rng(2)
    quantized, scale = recipes.quantize(random.normal(size=(24, 48)).astype(np.float32))
    bias = torch.from_numpy(random.normal(size=24).astype(np.float32))
    linear = Linear8(torch.from_numpy(quantized), torch.from_numpy(scale), bias)
    x = torch.from_numpy(random.normal(size=(2, 7, 48)).astype(np.float32))
    loud = torch.cat((x, 1000 * x[:, :1]), 1)
    assert torch.equal(linear(x), linear(loud)[:, :-1])
    exact = x @ torch.from_numpy(quantized * scale[:, None]).T + bias
    assert (linear(x) - exact).abs().max() < 0.02 * exact.abs().max()


@pytest.mark.parametrize("name", ["efficientnet-lite0", "efficientnet-lite1"])
def test_our_network_computes_what_the_published_one_does(name: str, tmp_path: Path) -> None:
    published = efficientnet_lite_pytorch.EfficientNet.from_name(name).eval()
    source = locate(ARTIFACTS[name].sources["weights"])
    published.load_state_dict(torch.load(source, weights_only=True))
    labels = locate(ARTIFACTS[name].sources["labels"])
    recipes.efficientnet({"weights": source, "labels": labels}, tmp_path)
    ours = EfficientNet(tmp_path / recipes.WEIGHTS, VARIANTS[name])
    side = VARIANTS[name].resolution
    pixels = torch.from_numpy(
        np.random.default_rng(3).normal(size=(2, 3, side, side)).astype(np.float32)
    )
    with torch.inference_mode():
        expected = published(pixels)
    assert (ours(pixels) - expected).abs().max() < 1e-3
    assert len(load_file(tmp_path / recipes.WEIGHTS)) > 90


def test_same_padding_keeps_the_size_divided_by_the_stride() -> None:
    for size in range(5, 40):
        for kernel, stride in ((1, 1), (3, 1), (5, 1), (3, 2), (5, 2)):
            before, after = same_padding(size, kernel, stride)
            assert (size + before + after - kernel) // stride + 1 == -(-size // stride)
            assert 0 <= after - before <= 1


class CountingNetwork(EfficientNet):
    """A network whose class is the picture's own brightness, and which counts its passes."""

    def __init__(self) -> None:
        self.variant = VARIANTS["efficientnet-lite0"]
        self.passes: list[int] = []

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        self.passes.append(len(pixels))
        return torch.nn.functional.one_hot(pixels[:, 0, 0, 0].long(), 50).float()


def test_pictures_of_all_requests_share_passes_and_answers_keep_their_order() -> None:
    network = CountingNetwork()
    classifier = Classifier(network, [f"class {index}" for index in range(50)])
    sizes = [1, 3, 0, PICTURES_PER_PASS]
    numbers = iter(range(50))
    requests = [[torch.full((3, 1, 1), float(next(numbers))) for _ in range(n)] for n in sizes]
    answers = classifier.classify(requests)
    assert network.passes == [PICTURES_PER_PASS, 4]
    assert [len(answer.labels) for answer in answers] == sizes
    firsts = [row[0] for answer in answers for row in answer.labels]
    assert firsts == [f"class {index}".encode() for index in range(sum(sizes))]


def test_requests_without_pictures_are_answered_without_a_pass() -> None:
    network = CountingNetwork()
    answers = Classifier(network, ["x"] * 50).classify([[], []])
    assert network.passes == []
    assert [answer.probabilities.shape for answer in answers] == [(0, 5), (0, 5)]


def test_more_documents_than_the_limit_are_refused() -> None:
    ranking.question(b"q", [b"d"] * limits.DOCUMENTS)
    with pytest.raises(ranking.BadText, match="documents"):
        ranking.question(b"q", [b"d"] * (limits.DOCUMENTS + 1))


def test_parameters_are_read_out_of_tritons_configuration() -> None:
    config = '{"parameters": {"threads": {"string_value": "2"}}, "max_batch_size": 8}'
    assert parameters.read(config) == {"threads": "2"}
    assert parameters.read("{}") == {}
    assert parameters.batches(config)
    assert not parameters.batches("{}")
    assert parameters.labels("my-model.12") == {"model": "my-model", "version": "12"}
