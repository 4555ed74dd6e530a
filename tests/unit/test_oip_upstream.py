"""What Triton's errors become, and the marks they carry."""

import pytest

from headrace.oip import upstream
from headrace.refusals import Refusal

STUB = (
    "Failed to process the request(s) for model instance 'm_0', "
    "message: Stub process 'm_0_0' is not healthy."
)

ROWS = [
    ("INVALID_ARGUMENT", "bad shape", Refusal.INVALID_VALUE, False, False),
    ("UNIMPLEMENTED", "decoupled", Refusal.NOT_IMPLEMENTED, False, False),
    ("CANCELLED", "", Refusal.CLIENT_GONE, False, False),
    ("DEADLINE_EXCEEDED", "Deadline Exceeded", Refusal.TIMEOUT, False, False),
    ("UNAVAILABLE", "[request id: 1] Exceeds maximum queue size", Refusal.OVERLOADED, True, False),
    ("UNAVAILABLE", "Request timeout expired", Refusal.OVERLOADED, True, False),
    ("UNAVAILABLE", "Server exiting", Refusal.NOT_READY, True, False),
    ("UNAVAILABLE", "failed to connect to all addresses", Refusal.NOT_READY, True, True),
    ("UNAVAILABLE", "Socket closed", Refusal.UPSTREAM_RESET, False, True),
    ("NOT_FOUND", "'m.1' has no available versions", Refusal.NOT_READY, True, False),
    ("INTERNAL", "out of memory", Refusal.INTERNAL, False, True),
    ("RESOURCE_EXHAUSTED", "Received message larger", Refusal.INTERNAL, False, False),
    ("UNKNOWN", "", Refusal.INTERNAL, False, True),
    ("INTERNAL", STUB, Refusal.NOT_READY, False, True),
]  # fmt: skip


@pytest.mark.parametrize(("code", "details", "refusal", "elsewhere", "sick"), ROWS)
def test_each_error_has_its_meaning(
    code: str, details: str, refusal: Refusal, elsewhere: bool, sick: bool
) -> None:
    refused = upstream.refuse(code, details, idempotent=False)
    assert (refused.refusal, refused.elsewhere, refused.sick) == (refusal, elsewhere, sick)
    assert refused.message


@pytest.mark.parametrize(
    ("code", "details"), [("UNAVAILABLE", "Socket closed"), ("INTERNAL", STUB)]
)
def test_a_request_the_node_lost_runs_elsewhere_only_where_that_is_harmless(
    code: str, details: str
) -> None:
    assert upstream.refuse(code, details, idempotent=True).elsewhere
    assert not upstream.refuse(code, details, idempotent=False).elsewhere


def test_an_error_text_in_a_stream_has_the_meaning_of_its_status() -> None:
    assert upstream.refuse_message("Exceeds maximum queue size", idempotent=False).refusal is (
        Refusal.OVERLOADED
    )
    assert upstream.refuse_message("boom", idempotent=False).refusal is Refusal.INTERNAL
    assert upstream.is_stub_death(STUB)
