"""EDS weights of least-loaded."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.limits import WEIGHT_LEVELS
from headrace.policy.weights import HYSTERESIS_LEVELS, IDLE, weigh

nodes = st.sampled_from([f"n{number}" for number in range(8)])
utilizations = st.dictionaries(nodes, st.none() | st.floats(-1, 3), min_size=1)
previous = st.dictionaries(nodes, st.integers(1, WEIGHT_LEVELS))


@given(utilizations, previous)
def test_every_node_has_a_weight_within_the_levels(
    utilization: dict[str, float | None], before: dict[str, int]
) -> None:
    weights = weigh(utilization, before)
    assert weights.keys() == utilization.keys()
    assert all(1 <= weight <= WEIGHT_LEVELS for weight in weights.values())


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_busier_node_never_weighs_more(one: float, other: float) -> None:
    weights = weigh({"busy": max(one, other), "idle": min(one, other)}, {})
    assert weights["busy"] <= weights["idle"]


@given(st.floats(0, 1), st.floats(-1, 1))
def test_noise_within_the_hysteresis_moves_nothing(utilization: float, noise: float) -> None:
    settled = weigh({"n": utilization}, {})
    # Rounding leaves up to half a level between headroom and weight.
    slack = (HYSTERESIS_LEVELS - 0.5) / WEIGHT_LEVELS * (1 - IDLE)
    assert weigh({"n": utilization + noise * slack * 0.99}, settled) == settled


def test_idle_nodes_weigh_the_same_whatever_their_few_percent() -> None:
    assert len(set(weigh({"a": 0.01, "b": 0.09}, {}).values())) == 1


def test_a_node_that_only_answers_health_questions_keeps_its_weight() -> None:
    before = {"n": WEIGHT_LEVELS}
    assert weigh({"n": IDLE}, before) == weigh({"n": 0.0}, before) == before


def test_a_node_without_a_fresh_report_takes_the_median_of_the_others() -> None:
    weights = weigh({"a": 0.0, "b": 0.5, "c": 1.0, "silent": None}, {})
    assert weights["silent"] == weights["b"]


def test_without_any_report_all_nodes_weigh_the_same() -> None:
    assert set(weigh({"a": None, "b": None}, {"a": 3, "b": 9}).values()) == {WEIGHT_LEVELS}


def test_a_full_node_keeps_the_least_weight_and_recovers() -> None:
    full = weigh({"n": 2.0}, {"n": WEIGHT_LEVELS})
    assert full == {"n": 1}
    assert weigh({"n": 0.0}, full) == {"n": WEIGHT_LEVELS}
