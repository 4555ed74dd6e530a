"""Routes that are held back because a proxy lacks clusters: who learns of it."""

import logging

import pytest

from headrace.policy.membership import Membership
from headrace.policy.record import Record
from headrace_xds.control import Control
from headrace_xds.counters import Counters
from headrace_xds.fleet import Fleet
from headrace_xds.messages import NodeInfo
from headrace_xds.observer import NAMES_SHOWN, StreamObserver
from headrace_xds.publish.publisher import Publisher
from headrace_xds.views import proxy_views

NODE = NodeInfo("gateway/eu")


class World:
    """An observer and what it tells."""

    def __init__(self) -> None:
        membership, fleet = Membership(Record(), now_s=0), Fleet()
        publisher = Publisher(fleet, now=lambda: 1.0, wall_s=lambda: 1.0)
        self.observer = StreamObserver(
            membership, fleet, publisher, now=lambda: 1.0, changed=lambda: None, counters=Counters()
        )
        self.control = Control(publications=publisher, membership=membership, fleet=fleet)
        self.observer.connected(1, NODE)

    def held_back(self) -> object:
        (view,) = proxy_views(self.control, now_s=1.0)
        return view["heldBack"]


def test_held_back_routes_are_shown_and_logged_with_what_the_proxy_lacks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    world = World()
    assert world.held_back() == []
    world.observer.held_back(NODE, {"gateway": frozenset({"m-b-1-http", "m-a-1-http"})})
    assert world.held_back() == [
        {"name": "gateway", "missingClusters": ["m-a-1-http", "m-b-1-http"]}
    ]
    told = "gateway/eu: routes gateway are held back: it lacks m-a-1-http, m-b-1-http"
    assert told in caplog.messages
    world.observer.held_back(NODE, {})
    assert world.held_back() == []
    assert caplog.messages[-1] == "gateway/eu: no routes are held back any more"


def test_a_log_line_names_a_few_clusters_and_counts_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    missing = frozenset(f"c{number:03}" for number in range(NAMES_SHOWN + 90))
    World().observer.held_back(NODE, {"gateway": missing})
    assert caplog.messages[-1].endswith("c008, c009 and 90 more")
