"""What unit tests share: a peer of a hub, in every way that a client can speak."""

import pytest

from headrace_xds.translate.resources import ENDPOINTS
from tests.fakes.ads_peer import WAYS, PromptPeer, Way
from tests.fakes.ads_recorder import RecordedHub


@pytest.fixture(params=WAYS, ids=str)
def peer(request: pytest.FixtureRequest) -> PromptPeer:
    way: Way = request.param
    world = RecordedHub()
    # Something else is served from the start, so that no stream is turned away.
    world.publish("other", ENDPOINTS)
    return PromptPeer(world, way)
