"""Where a control server under test publishes to."""

from collections.abc import Mapping
from typing import Any

from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment

from headrace import names
from headrace_xds.translate.resources import ENDPOINTS, SECRET, Resource


class Published:
    """The last publication of each group and type."""

    def __init__(self) -> None:
        self.resources: dict[tuple[str, str], Mapping[str, Resource]] = {}
        self.withheld: dict[str, frozenset[str]] = {}
        self.count = 0
        self.in_use: frozenset[str] = frozenset()

    def publish(self, group: str, type_url: str, resources: Mapping[str, Resource]) -> None:
        self.resources[group, type_url] = dict(resources)
        self.count += 1

    def withhold(self, group: str, type_url: str, withheld: frozenset[str]) -> None:
        assert type_url in (ENDPOINTS, SECRET)
        if type_url == ENDPOINTS:
            self.withheld[group] = withheld

    def drop_group(self, group: str) -> None:
        for key in [key for key in self.resources if key[0] == group]:
            del self.resources[key]

    def commit(self) -> None:
        pass

    def advance(self, *, now_s: float) -> None:
        pass

    def clusters_in_use(self) -> frozenset[str]:
        return self.in_use

    def endpoints(
        self, gateway: str, cluster: str = names.cluster("vision", 1, "http")
    ) -> dict[str, Any]:
        found = self.resources[f"gateway/{gateway}", ENDPOINTS][cluster]
        message = ClusterLoadAssignment.FromString(found.body)
        return {
            endpoint.endpoint.hostname: (
                locality.priority,
                endpoint.load_balancing_weight.value,
                endpoint.health_status,
            )
            for locality in message.endpoints
            for endpoint in locality.lb_endpoints
        }
