"""Ports that nobody listens on."""

import socket


def free_ports(count: int, address: str = "127.0.0.1") -> list[int]:
    """So many ports of an address, all different; free until somebody takes them."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for item in sockets:
            item.bind((address, 0))
        return [item.getsockname()[1] for item in sockets]
    finally:
        for item in sockets:
            item.close()
