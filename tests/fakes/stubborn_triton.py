"""A stand-in for a sick tritonserver: takes its flags, ignores SIGTERM, answers if told to.

It reads its mood from the environment variable ``MOOD``: ``answer`` serves ServerMetadata on the
socket of ``--grpc-address`` and ``--grpc-port``, ``silent`` serves nothing, ``die`` exits at once.
"""

import concurrent.futures
import os
import signal
import sys

import grpc


def metadata(_request: bytes, _context: object) -> bytes:
    return b"\x0a\x06triton\x12\x049.99"


def main(arguments: list[str]) -> int:
    mood = os.environ["MOOD"]
    print(f"mood {mood}", flush=True)
    if mood == "die":
        return 3
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    flags = dict(argument.split("=", 1) for argument in arguments if "=" in argument)
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
    calls = {"ServerMetadata": grpc.unary_unary_rpc_method_handler(metadata)}
    handler = grpc.method_handlers_generic_handler("inference.GRPCInferenceService", calls)
    server.add_generic_rpc_handlers((handler,))
    if mood == "answer":
        server.add_insecure_port(f"{flags['--grpc-address']}:{flags['--grpc-port']}")
        server.start()
    while True:
        signal.pause()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
