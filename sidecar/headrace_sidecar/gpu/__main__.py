"""``headrace-gpu``: the sidecar of one GPU node."""

import logging
import sys
from collections.abc import Sequence

import uvloop

from headrace import limits
from headrace_sidecar.gpu.app import serve
from headrace_sidecar.gpu.settings import settings


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; its exit status."""
    chosen = settings(arguments, grace_s=limits.DRAIN_GRACE_S, deadline_s=limits.DRAIN_S)
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format=f"%(asctime)s %(levelname)s {chosen.node} %(name)s %(message)s",
    )
    try:
        uvloop.run(serve(chosen))
    except OSError as error:
        print(f"headrace-gpu: cannot listen: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
