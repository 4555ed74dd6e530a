"""Why a goal was missed, out of what was measured beside the figure."""

from collections.abc import Mapping, Sequence
from typing import Any

_SHOWN = 2
"""Programs that are named: those that take most."""
Row = Mapping[str, Any]


def reason(figure: str, figures: Mapping[str, float], rows: Sequence[Row]) -> str:
    """One sentence about the figure; empty when nothing was measured that explains it."""
    match figure:
        case "rps_ratio_direct":
            return f"{_most(rows)}; Triton's own gRPC takes {_total(rows, 'triton grpc')} µs"
        case "added_p50_ms":
            return f"{_medians(rows)}; {_most(rows)}"
        case "small_p95_beside_10mb":
            own = figures["small_p95_beside_10mb_triton"]
            return f"{_beside(rows, 'mesh http')}; Triton's own HTTP in the same place: {own:.1f}"
    return ""


def _most(rows: Sequence[Row]) -> str:
    """The programs of the mesh that take most, and what all take."""
    profile = _profile(rows, "mesh http")
    most = sorted(profile.items(), key=lambda pair: -pair[1])[:_SHOWN]
    named = " and ".join(f"{program} {us} µs" for program, us in most)
    return f"a request takes {named} of {_total(rows, 'mesh http')} µs of processor time"


def _total(rows: Sequence[Row], road: str) -> int:
    return sum(_profile(rows, road).values())


def _profile(rows: Sequence[Row], road: str) -> dict[str, int]:
    """Microseconds a request by program."""
    of_road = [row for row in rows if row.get("profile") == road]
    return {row["program"]: row["cpu_us_per_request"] for row in of_road}


def _medians(rows: Sequence[Row]) -> str:
    found = {
        row["road"]: row["p50_ms"]
        for row in rows
        if (row.get("body"), row.get("callers")) == ("1 KB", 1)
    }
    return f"p50 {found['mesh http']:.2f} ms, Triton's own HTTP {found['triton http']:.2f} ms"


def _beside(rows: Sequence[Row], road: str) -> str:
    found = {row["load"]: row["p95_ms"] for row in rows if row.get("small_bodies") == road}
    return f"p95 {found['beside 10 MB']:.1f} ms, alone {found['alone']:.1f} ms"
