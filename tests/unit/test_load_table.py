"""Which load reports steer traffic: no fresher than what the node itself had last heard."""

import pytest

from headrace import limits
from headrace.signals import NodeLoad, VersionLoad
from headrace_xds.loads import LoadTable

STALE_S = limits.SIGNAL_STALE_S
AT_S = 100.0


def table(*, ready: bool = True, triton_age_s: float = 0.0) -> LoadTable:
    version = VersionLoad(
        model="vision", version=1, ready=ready, queue=0, running=0, utilization=0.5, rps=1
    )
    made = LoadTable()
    made.observe(
        NodeLoad(
            node="n1", observed_at_s=AT_S, rps=1, triton_age_s=triton_age_s, versions=(version,)
        )
    )
    return made


@pytest.mark.parametrize(
    ("triton_age_s", "later_s", "known"),
    [
        (0.2, 0.0, True),
        (0.2, STALE_S - 0.3, True),
        (0.2, STALE_S - 0.1, False),
        (STALE_S - 0.1, 0.0, True),
        (STALE_S + 0.1, 0.0, False),
        (0.0, STALE_S + 0.1, False),
    ],
)
def test_utilisation_is_unknown_once_what_it_rests_on_is_stale(
    triton_age_s: float, later_s: float, known: bool
) -> None:
    # What is unknown weighs the median: tests of the control server and of the weights say so.
    found = table(triton_age_s=triton_age_s).utilization("n1", "vision@1", now_s=AT_S + later_s)
    assert found == (0.5 if known else None)


def test_a_silent_triton_does_not_hide_that_a_version_was_lost() -> None:
    made = table(ready=False, triton_age_s=60.0)
    assert made.unready(now_s=AT_S) == {"vision@1": {"n1"}}
    assert made.unready(now_s=AT_S + STALE_S + 0.1) == {}
