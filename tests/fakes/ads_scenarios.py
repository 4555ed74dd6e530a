"""Types that a scenario runs for, by how their clients ask."""

import pytest

from headrace_xds.translate.resources import (
    CLUSTER,
    ENDPOINTS,
    LISTENER,
    ROUTES,
    SCOPES,
    SECRET,
)

EVERY = (CLUSTER, LISTENER, ROUTES, ENDPOINTS, SECRET)
OPEN_EMPTY = (CLUSTER, LISTENER, SCOPES)
"""Types whose clients ask for everything by naming nothing."""


def short(type_url: str) -> str:
    """Last word of a type, for the name of a test."""
    return type_url.rpartition(".")[2]


every_type = pytest.mark.parametrize("type_url", EVERY, ids=short)
types_that_open_empty = pytest.mark.parametrize("type_url", OPEN_EMPTY, ids=short)
types_that_name = pytest.mark.parametrize("type_url", [ROUTES, ENDPOINTS, SECRET], ids=short)
