"""The table of metrics keeps Prometheus' rules on names, units and labels."""

import re

import pytest

from headrace.metrics import TABLE, Metric

LABELS = {
    "cause",
    "code",
    "gpu",
    "health",
    "model",
    "node",
    "outcome",
    "program",
    "python",
    "role",
    "severity",
    "source",
    "state",
    "type",
    "version",
}
row = pytest.mark.parametrize("metric", TABLE, ids=lambda metric: metric.name)


def test_names_are_unique() -> None:
    names = [metric.name for metric in TABLE]
    assert len(names) == len(set(names))


@row
def test_a_name_has_the_prefix_of_the_mesh(metric: Metric) -> None:
    assert re.fullmatch(r"headrace_[a-z][a-z_]*[a-z]", metric.name)


@row
def test_a_name_ends_in_its_unit(metric: Metric) -> None:
    ending = metric.name.removesuffix("_total")
    if metric.unit:
        assert ending.endswith(f"_{metric.unit}")
    else:
        assert not re.search(r"_(seconds|bytes|ratio|info|ms|milliseconds)$", ending)


@row
def test_only_counters_end_in_total(metric: Metric) -> None:
    assert metric.name.endswith("_total") == (metric.kind == "counter")


@row
def test_only_histograms_have_buckets_and_they_rise(metric: Metric) -> None:
    assert bool(metric.buckets) == (metric.kind == "histogram")
    assert list(metric.buckets) == sorted(set(metric.buckets))


@row
def test_labels_are_few_and_known_to_be_bounded(metric: Metric) -> None:
    assert len(metric.labels) <= 4
    assert set(metric.labels) <= LABELS


@row
def test_a_metric_says_what_it_counts(metric: Metric) -> None:
    assert metric.help
    assert not metric.help.endswith(".")
