"""Retries on the real Envoy: bodies of the largest size are repeated, and storms are bounded."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.fakes.mesh_gateway import ALWAYS, INFER, VISION, long_field, running
from tests.fakes.mesh_ir import route, served
from tests.fakes.mesh_node import REFUSE

pytestmark = pytest.mark.e2e

BODY_BYTES = 10 * 2**20
STORM = 60
BUDGET_SHARE = 0.2


async def test_a_body_of_ten_megabytes_is_sent_again_whole(tmp_path: Path) -> None:
    async with running(tmp_path, served("vision", 1), route("vision", "vision", *ALWAYS)) as (
        gateway,
        [full, free],
    ):
        full.behave = lambda _: REFUSE
        for _ in range(4):
            reply = await gateway.send(INFER, body=bytes(BODY_BYTES))
            assert reply.headers["x-node"] == free.name
            told = await gateway.call("ModelInfer", VISION + long_field(7, BODY_BYTES))
            assert told["x-node"] == free.name
        assert full.seen, "no request was sent twice"
        assert {seen.body_bytes >= BODY_BYTES for seen in (*full.seen, *free.seen)} == {True}


async def test_a_storm_of_refusals_spends_its_retry_budget_and_no_more(tmp_path: Path) -> None:
    async with running(tmp_path, served("vision", 1), route("vision", "vision", *ALWAYS)) as (
        gateway,
        nodes,
    ):
        for node in nodes:
            node.behave = lambda _: REFUSE
        replies = await asyncio.gather(*(gateway.send(INFER) for _ in range(STORM)))
        assert Counter(reply.status for reply in replies) == {503: STORM}
        # Two retries each would be 120. Those that may always be in flight come on top of the
        # share, again and again while the storm lasts.
        retries = sum(len(node.seen) for node in nodes) - STORM
        assert 0 < retries < STORM
        overflow = await gateway.stat("cluster.m-vision-1-http.upstream_rq_retry_overflow")
        assert overflow >= STORM * (1 - BUDGET_SHARE) / 2
