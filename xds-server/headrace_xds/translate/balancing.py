"""Load balancing policies, by the name the mesh language gives them."""

from typing import Final, assert_never

import betterproto2
from envoy_data_plane.envoy.config.cluster.v3 import LoadBalancingPolicy, LoadBalancingPolicyPolicy
from envoy_data_plane.envoy.config.core.v3 import RuntimeDouble, TypedExtensionConfig
from envoy_data_plane.envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3 import (  # noqa: E501
    ClientSideWeightedRoundRobin,
)
from envoy_data_plane.envoy.extensions.load_balancing_policies.common.v3 import (
    OrcaOobReportingConfig,
)
from envoy_data_plane.envoy.extensions.load_balancing_policies.least_request.v3 import LeastRequest
from envoy_data_plane.envoy.extensions.load_balancing_policies.round_robin.v3 import RoundRobin

from headrace import ir, limits
from headrace_xds.translate import runtime
from headrace_xds.translate.packing import pack, seconds

BLACKOUT_S: Final = 1.0
"""A node's reports count only after it has reported for so long."""


def policy(balance: ir.Balance, *, metric: str, orca_port: int) -> LoadBalancingPolicy:
    """Envoy's policy for a balance; ``metric`` and ``orca_port`` matter to ``utilization`` only."""
    extension = TypedExtensionConfig(
        name=f"headrace.{balance}", typed_config=pack(_config(balance, metric, orca_port))
    )
    return LoadBalancingPolicy(
        policies=[LoadBalancingPolicyPolicy(typed_extension_config=extension)]
    )


def _config(balance: ir.Balance, metric: str, orca_port: int) -> betterproto2.Message:
    match balance:
        case "round-robin":
            return RoundRobin()
        case "least-request":
            return LeastRequest(choice_count=2)
        case "least-loaded":
            # With unequal EDS weights Envoy no longer draws two hosts and compares: it walks a
            # schedule by weight / (active requests + 1) ^ bias. Bias 1 lets a node that fell
            # behind since the last weights shed load by itself.
            return LeastRequest(
                choice_count=2,
                active_request_bias=RuntimeDouble(
                    default_value=1.0, runtime_key=runtime.LEAST_LOADED_BIAS
                ),
            )
        case "utilization":
            return ClientSideWeightedRoundRobin(
                enable_oob_load_report=True,
                oob_reporting_period=seconds(limits.SIGNAL_PERIOD_S),
                oob_reporting_config=OrcaOobReportingConfig(port_value=orca_port),
                blackout_period=seconds(BLACKOUT_S),
                weight_expiration_period=seconds(limits.SIGNAL_STALE_S),
                weight_update_period=seconds(limits.SIGNAL_PERIOD_S),
                metric_names_for_computing_utilization=[metric],
            )
        case _:
            assert_never(balance)
