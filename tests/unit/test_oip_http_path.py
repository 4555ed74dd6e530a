"""Paths of the protocol: what each asks for."""

import pytest

from headrace.oip.http_path import Target, parse
from headrace.refusals import Refusal, Refused

PATHS = {
    "/v2": Target("server"),
    "/v2/health/live": Target("live"),
    "/v2/health/ready": Target("server-ready"),
    "/v2/models/m": Target("metadata", "m"),
    "/v2/models/m/ready": Target("ready", "m"),
    "/v2/models/m/config": Target("config", "m"),
    "/v2/models/m/stats": Target("stats", "m"),
    "/v2/models/m/infer": Target("infer", "m"),
    "/v2/models/m%2D1/infer": Target("infer", "m-1"),
    "/v2/models/m/versions/2": Target("metadata", "m", 2),
    "/v2/models/m/versions/2/infer": Target("infer", "m", 2),
    "/v2/models/versions/versions/0/ready": Target("ready", "versions", 0),
}


@pytest.mark.parametrize("path", PATHS)
def test_a_path_of_the_protocol_is_understood(path: str) -> None:
    assert parse(path) == PATHS[path]


@pytest.mark.parametrize(
    ("path", "refusal"),
    [
        ("", Refusal.NOT_FOUND),
        ("/", Refusal.NOT_FOUND),
        ("/v2/", Refusal.NOT_FOUND),
        ("/v1/models/m", Refusal.NOT_FOUND),
        ("/v2/models", Refusal.NOT_FOUND),
        ("/v2/models/m/", Refusal.NOT_FOUND),
        ("/v2/models/m/infer/", Refusal.NOT_FOUND),
        ("/v2/models/m/load", Refusal.NOT_FOUND),
        ("/v2/models/m/versions", Refusal.NOT_FOUND),
        ("/v2/models/m/versions/", Refusal.NOT_FOUND),
        ("/v2/repository/index", Refusal.NOT_FOUND),
        ("http://host/v2", Refusal.NOT_FOUND),
        ("/v2/models/", Refusal.INVALID_VALUE),
        ("/v2/models/a%2Fb", Refusal.INVALID_VALUE),
        ("/v2/models/a%00", Refusal.INVALID_VALUE),
        ("/v2/models/../x", Refusal.INVALID_VALUE),
        ("/v2/models/" + "m" * 64, Refusal.INVALID_VALUE),
        ("/v2/models/m/versions/-1", Refusal.MODEL_NOT_FOUND),
        ("/v2/models/m/versions/latest", Refusal.MODEL_NOT_FOUND),
        ("/v2/models/m/versions/1234567890", Refusal.MODEL_NOT_FOUND),
    ],
)
def test_another_path_is_refused(path: str, refusal: Refusal) -> None:
    with pytest.raises(Refused) as caught:
        parse(path)
    assert caught.value.refusal is refusal
