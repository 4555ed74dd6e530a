"""Ports of a local mesh: the documented ones, or free ones so that many meshes run side by side."""

import secrets
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack

import msgspec

LOWEST, HIGHEST = 20_000, 32_000
"""Free ports are taken from here: below what the system gives to outgoing connections, so that no
client's socket takes a port between the moment it was found free and the moment it is opened."""


class NoFreePortError(OSError):
    """Every port of the range is taken."""


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """Every port of a local mesh; nodes share theirs, since each has an address of its own."""

    xds: int
    admin: int
    node_http: int
    node_grpc: int
    node_orca: int
    node_metrics: int
    gateways: Mapping[str, int]
    gateway_admins: Mapping[str, int]


def documented(gateways: Mapping[str, int], *, orca_port: int) -> Ports:
    """The ports that the guide names, with gateways where the configuration puts them."""
    return Ports(
        xds=18000,
        admin=10080,
        node_http=18080,
        node_grpc=18081,
        node_orca=orca_port,
        node_metrics=18083,
        gateways=dict(gateways),
        gateway_admins={name: 19000 + number for number, name in enumerate(sorted(gateways))},
    )


def free(gateways: Sequence[str], *, addresses: Sequence[str]) -> Ports:
    """Ports that are free now on loopback and on every given address."""
    found = iter(free_ports(6 + 2 * len(gateways), addresses=("127.0.0.1", *addresses)))
    return Ports(
        xds=next(found),
        admin=next(found),
        node_http=next(found),
        node_grpc=next(found),
        node_orca=next(found),
        node_metrics=next(found),
        gateways={name: next(found) for name in gateways},
        gateway_admins={name: next(found) for name in gateways},
    )


def taken(sockets: Iterable[tuple[str, int]]) -> list[str]:
    """Those on which somebody listens already, as ``address:port``."""
    return [f"{address}:{port}" for address, port in sockets if not _may_listen(address, port)]


def _may_listen(address: str, port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: connections that are only being forgotten do not stand in the way.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def free_ports(count: int, *, addresses: Sequence[str]) -> list[int]:
    """Different ports, each free on all the addresses."""
    ports: list[int] = []
    for port in _candidates():
        if len(ports) == count:
            break
        if _is_free(port, addresses):
            ports.append(port)
    if len(ports) < count:
        raise NoFreePortError(f"no {count} free ports between {LOWEST} and {HIGHEST}")
    return ports


def _candidates() -> Iterator[int]:
    # Starting anywhere keeps two meshes that start together from finding the same ports.
    span = HIGHEST - LOWEST
    start = secrets.randbelow(span)
    return (LOWEST + (start + step) % span for step in range(span))


def _is_free(port: int, addresses: Sequence[str]) -> bool:
    with ExitStack() as sockets:
        for address in addresses:
            probe = sockets.enter_context(socket.socket())
            try:
                probe.bind((address, port))
            except OSError:
                return False
    return True
