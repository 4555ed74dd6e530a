"""When a request may be tried again, and where the next attempt goes."""

from typing import Final

from envoy_data_plane.envoy.config.route.v3 import (
    HeaderMatcher,
    RetryPolicy,
    RetryPolicyRetryBackOff,
    RetryPolicyRetryHostPredicate,
    RetryPolicyRetryPriority,
)
from envoy_data_plane.envoy.extensions.retry.host.previous_hosts.v3 import PreviousHostsPredicate
from envoy_data_plane.envoy.extensions.retry.priority.previous_priorities.v3 import (
    PreviousPrioritiesConfig,
)
from envoy_data_plane.envoy.type.matcher.v3 import StringMatcher

from headrace import headers, ir
from headrace.refusals import Refusal
from headrace_xds.translate.packing import pack, seconds

NOT_RUN: Final = ("connect-failure", "refused-stream", "reset-before-request", "retriable-headers")
"""The request did not run: it never arrived, or the sidecar says so."""
MAY_HAVE_RUN: Final = ("reset", "retriable-status-codes", "unavailable")
"""The request may have run; only where running it twice is harmless."""
HOST_ATTEMPTS: Final = 5
"""Draws for a node that was not tried before."""
BACK_OFF_S: Final = 0.005
BACK_OFF_MAX_S: Final = 0.05
"""Short, since the next attempt goes to another node; the budget bounds a storm."""


def retry_policy(retry: ir.Retry, *, idempotent: bool) -> RetryPolicy | None:
    """Policy of a route; None when it allows no second attempt."""
    if retry.attempts == 0:
        return None
    causes = NOT_RUN + MAY_HAVE_RUN if idempotent else NOT_RUN
    # With room for more than one retry, the second attempt stays in the region and the third
    # leaves it; a single retry leaves it at once, since it is the last chance.
    stay = min(retry.attempts, 2)
    return RetryPolicy(
        retry_on=",".join(causes),
        num_retries=retry.attempts,
        per_try_timeout=(
            None if retry.per_try_timeout_s is None else seconds(retry.per_try_timeout_s)
        ),
        retry_host_predicate=[
            RetryPolicyRetryHostPredicate(
                name="envoy.retry_host_predicates.previous_hosts",
                typed_config=pack(PreviousHostsPredicate()),
            )
        ],
        retry_priority=RetryPolicyRetryPriority(
            name="envoy.retry_priorities.previous_priorities",
            typed_config=pack(PreviousPrioritiesConfig(update_frequency=stay)),
        ),
        host_selection_retry_max_attempts=HOST_ATTEMPTS,
        retriable_status_codes=[Refusal.UPSTREAM_RESET.http] if idempotent else [],
        retriable_headers=[
            HeaderMatcher(name=headers.RETRY, string_match=StringMatcher(exact=headers.RETRY_SAFE))
        ],
        retry_back_off=RetryPolicyRetryBackOff(
            base_interval=seconds(BACK_OFF_S), max_interval=seconds(BACK_OFF_MAX_S)
        ),
        refresh_cluster_on_retry=True,
    )
