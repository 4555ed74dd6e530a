"""A stand-in for a program of the mesh: answers 200 on some sockets until it is told to stop.

``python program.py [--deaf] [--crash] [ADDRESS:PORT ...]``; ``--deaf`` ignores SIGTERM, ``--crash``
exits with status 3 at once.
"""

import http.server
import signal
import sys
import threading


class Yes(http.server.BaseHTTPRequestHandler):
    """Answers everything with 200."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Leave the log to what a test looks for."""


def main(arguments: list[str]) -> int:
    if "--crash" in arguments:
        print("this program always ends", file=sys.stderr)
        return 3
    stop = threading.Event()
    if "--deaf" in arguments:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
    for place in (argument for argument in arguments if ":" in argument):
        address, _, port = place.rpartition(":")
        server = http.server.ThreadingHTTPServer((address, int(port)), Yes)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print("started", file=sys.stderr, flush=True)
    stop.wait()
    print("stopped", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
