"""Streaming answers are byte-complete under hundreds of pushes; ``bench streams`` takes longer."""

from pathlib import Path

import pytest

from tests.fakes.ads_streams import survive

pytestmark = pytest.mark.e2e


async def test_streams_survive_pushes_drains_and_the_deletion_of_their_cluster(
    tmp_path: Path,
) -> None:
    outcome = await survive(tmp_path, streams=10, pushes=500, seconds=12)
    assert (outcome.complete, outcome.cut, outcome.pushes) == (10, 0, 500)
