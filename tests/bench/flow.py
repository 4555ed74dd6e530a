"""Large bodies without end: ``python -m tests.bench.flow HOST PORT MODEL SIZE CONNECTIONS``.

A process of its own, so that the client that is measured does not wait for it. It says ``flowing``
once a first answer came back.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.http_client import http_loop
from tests.bench.payload import http_request

_ROOT = Path(__file__).parents[2]
_ENDLESS_S = 3600.0


@contextmanager
def flowing(address: tuple[str, int], model: str, *, size: int, connections: int) -> Iterator[None]:
    """Bodies of a size flow while the block runs."""
    arguments = [address[0], str(address[1]), model, str(size), str(connections)]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.bench.flow", *arguments],
        cwd=_ROOT,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"flowing\n":
                raise RuntimeError("the large bodies do not flow")
            yield
        finally:
            process.kill()


def main() -> None:
    """Flow until killed."""
    host, port, model, size, connections = sys.argv[1:]
    address = (host, int(port))
    request = http_request(host, model, int(size))
    http_loop(address, request, connections=int(connections), seconds=0)
    print("flowing", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        http_loop(address, request, connections=int(connections), seconds=_ENDLESS_S)


if __name__ == "__main__":
    main()
