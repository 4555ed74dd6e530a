"""How long requests may take."""

import pytest

from headrace import limits
from headrace.oip import patience


@pytest.mark.parametrize("header", [None, "", "-1", "1.5", "soon", "\u0661"])
def test_without_a_number_from_the_gateway_the_limit_on_requests_holds(header: str | None) -> None:
    assert patience.timeout_s(header) == limits.REQUEST_DEADLINE_S


@pytest.mark.parametrize(
    ("header", "expected_s"),
    [("250", 0.225), ("10000", 9.75), ("0", 0.0009), ("9" * 30, limits.REQUEST_DEADLINE_S)],
)
def test_a_node_gives_up_a_little_before_its_gateway_does(header: str, expected_s: float) -> None:
    assert patience.timeout_s(header) == pytest.approx(expected_s)


def test_the_limit_on_a_streams_life_may_be_longer() -> None:
    assert patience.timeout_s(None, limits.STREAM_DEADLINE_S) == limits.STREAM_DEADLINE_S
