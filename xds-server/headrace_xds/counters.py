"""What happened since the control server started and is not state of anything else."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Counters:
    """Acknowledgements and refusals by type URL, and writes of the ledger that failed."""

    acks: Counter[str] = field(default_factory=Counter)
    nacks: Counter[str] = field(default_factory=Counter)
    ledger_failures: int = 0
