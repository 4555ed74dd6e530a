"""What ``headrace proxy status`` says of proxies that are behind."""

from typing import Any

from headrace_xds.cli.proxy_status import COLUMNS


def row(**changes: Any) -> dict[str, Any]:
    return {
        "id": "gateway/eu",
        "build": "1.40.0",
        "connected": True,
        "inEffect": False,
        "types": [],
        "heldBack": [],
        **changes,
    }


def shown(column: str, of: dict[str, Any]) -> object:
    (found,) = (one for one in COLUMNS if one.head == column)
    return found.cell(of)


def test_routes_that_are_held_back_are_named_with_what_they_lack() -> None:
    held = {"name": "gateway", "missingClusters": ["m-a-1-http", "m-b-1-http"]}
    assert shown("PROBLEM", row(heldBack=[held])) == (
        "RDS held back: gateway names 2 clusters that are not there: m-a-1-http, m-b-1-http"
    )
    assert shown("STATE", row(heldBack=[held])) == "behind"


def test_a_refusal_is_shown_with_its_reason() -> None:
    refused = {"name": "web", "message": "no such filter"}
    kind = {"type": "LDS", "rejected": [refused], "lastAckAgeSeconds": None}
    assert shown("PROBLEM", row(types=[kind])) == "LDS NACK: web: no such filter"
    assert shown("STATE", row(types=[kind])) == "rejected"
