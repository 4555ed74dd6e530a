"""A process that does large work for the sidecar that started it.

It reads tasks from the socket that is its standard input, answers each, and ends when the socket is
closed: with the sidecar, however that ends.
"""

import os
import resource
import signal
import socket
import sys
from typing import Any, Final

import msgspec

from headrace_sidecar.gpu import conversion

NICENESS: Final = 5
"""Small requests beside the large ones come first where processors are scarce."""
_LENGTH_BYTES: Final = 8

Socket = socket.socket
_encode: Final = msgspec.msgpack.Encoder().encode
decode_task: Final = msgspec.msgpack.Decoder(conversion.Task).decode
decode_outcome: Final = msgspec.msgpack.Decoder(conversion.Outcome).decode


def send(connection: Socket, value: Any) -> None:
    """Send a value, its length first."""
    data = _encode(value)
    connection.sendall(len(data).to_bytes(_LENGTH_BYTES, "big"))
    connection.sendall(data)


def receive(connection: Socket) -> bytearray:
    """Bytes of the next value; EOFError when there is none."""
    return _exactly(connection, int.from_bytes(_exactly(connection, _LENGTH_BYTES), "big"))


def _exactly(connection: Socket, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = connection.recv_into(view, 0, socket.MSG_WAITALL)
        if count == 0:
            raise EOFError
        view = view[count:]
    return data


def main() -> None:
    """Answer tasks until the socket is closed; the argument bounds the memory."""
    memory_bytes = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    os.nice(NICENESS)
    for number in (signal.SIGINT, signal.SIGTERM):
        # Sent to a whole group; the sidecar goes on until it has answered what is inside.
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=sys.stdin.fileno()) as connection:
        while True:
            try:
                task = decode_task(receive(connection))
            except (EOFError, ConnectionError):
                return
            send(connection, conversion.perform(task))


if __name__ == "__main__":
    main()
