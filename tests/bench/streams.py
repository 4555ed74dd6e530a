"""Whether long streaming answers survive what happens to a configuration in the meantime.

Real Envoy, one upstream that counts, and pushes of clusters, endpoints, routes, drained hosts and
deleted clusters. Every stream is compared byte by byte with what the upstream sent.
"""

import asyncio
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.fakes.ads_streams import survive

GOALS: Mapping[str, tuple[str, float]] = {"cut_streams": ("<=", 0.0)}
MEANINGS: Mapping[str, str] = {
    "cut_streams": "streams that were cut or lost a byte",
    "pushes": "changes of the configuration while the streams ran",
}
STREAMS: Final = 50
PUSHES: Final = 500
FULL_S: Final = 600.0
QUICK_S: Final = 30.0

Say = Callable[[str], None]
Row = dict[str, Any]


def run(*, quick: bool, say: Say) -> tuple[Mapping[str, float], Sequence[Row]]:
    """Run the streams; figures and a row."""
    seconds = QUICK_S if quick else FULL_S
    say(f"{STREAMS} streams of {seconds:.0f} s under {PUSHES} pushes")
    with tempfile.TemporaryDirectory(prefix="hr-s") as folder:
        outcome = asyncio.run(
            survive(Path(folder), streams=STREAMS, pushes=PUSHES, seconds=seconds)
        )
    row = {
        "streams": STREAMS,
        "complete": outcome.complete,
        "cut": outcome.cut,
        "pushes": outcome.pushes,
        "seconds": round(outcome.seconds),
    }
    return {"cut_streams": float(outcome.cut), "pushes": float(outcome.pushes)}, [row]


def why(figure: str, _: Mapping[str, float], rows: Sequence[Row]) -> str:
    """What was measured that explains a missed goal."""
    return f"{rows[0]['complete']} of {rows[0]['streams']} were complete" if figure else ""
