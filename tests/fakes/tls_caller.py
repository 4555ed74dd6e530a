"""A caller that speaks TLS to a gateway on this machine."""

import asyncio
import ssl
from collections.abc import Sequence

from tests.fakes.certificates import Pair

HOST = "127.0.0.1"


def trusting(
    *certificates: bytes, protocols: Sequence[str] = (), as_: Pair | None = None, folder: str = ""
) -> ssl.SSLContext:
    """A context that trusts these certificates; with ``as_`` it shows one of its own.

    The pair is read from files of ``folder``: the library takes no other.
    """
    context = ssl.create_default_context()
    for certificate in certificates:
        context.load_verify_locations(cadata=certificate.decode())
    if protocols:
        context.set_alpn_protocols(list(protocols))
    if as_ is not None:
        context.load_cert_chain(f"{folder}/tls.crt", f"{folder}/tls.key")
    return context


async def shown(port: int) -> bytes:
    """Certificate that a listener shows now, as DER; empty when it shows none."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        async with asyncio.timeout(5):
            _, writer = await asyncio.open_connection(HOST, port, ssl=context)
    except (OSError, TimeoutError):
        return b""
    found: bytes | None = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return found or b""


def der(pair: Pair) -> bytes:
    """Certificate of a pair, as a listener shows it."""
    return ssl.PEM_cert_to_DER_cert(pair.certificate.decode())
