"""Spoilt configurations break nothing; ``bench config-fuzz`` tries thousands of others."""

import random
from pathlib import Path

import pytest

from headrace_xds import envoy_schema
from headrace_xds.binaries import envoy
from headrace_xds.gate.gate import Gate
from tests.fakes.config_fuzz import fuzz, seeds, spoilt

CASES = 400


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(envoy(), tmp_path, envoy_schema.read(envoy()))


def test_spoilt_configurations_are_refused_or_taken_by_envoy(gate: Gate) -> None:
    report = fuzz(range(CASES), gate)
    assert not report.crashes, report
    assert not report.refused, report
    # Neither is everything refused at the door, nor nothing.
    assert CASES * 0.1 < report.accepted < CASES * 0.9


def test_a_case_can_be_repeated_by_its_number() -> None:
    texts = [spoilt(random.Random(7), seeds()[0]) for _ in range(2)]
    assert texts[0] == texts[1]
