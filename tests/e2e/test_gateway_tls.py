"""TLS at a real Envoy: what callers speak, and certificates that change while they do."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import grpc.aio
import pytest

from headrace import headers, ir
from headrace_xds.translate import tls
from headrace_xds.translate.resources import SECRET, Resource
from tests.fakes.ads_recorder import until
from tests.fakes.certificates import Pair, pair
from tests.fakes.mesh_gateway import ALWAYS, INFER, SERVICE, VISION, MeshGateway, mesh_gateway
from tests.fakes.mesh_ir import KEY, mesh, route, served
from tests.fakes.mesh_node import mesh_node
from tests.fakes.tls_caller import HOST, der, shown, trusting

pytestmark = [pytest.mark.e2e]

FIRST, SECOND, CALLER = pair("first"), pair("second"), pair("caller")
PARTS = (served("vision", 1), route("vision", "vision", *ALWAYS))


def secret(made: Pair) -> Resource:
    return tls.certificate(made.certificate, made.key)


@asynccontextmanager
async def secure(folder: Path, of: ir.Tls, *secrets: Resource) -> AsyncIterator[MeshGateway]:
    """A gateway that speaks TLS, with one node behind it."""
    gateway = ir.Gateway("eu", "eu", HOST, 0, of)
    made = mesh(*PARTS, regions=(ir.Region("eu", ("eu-a",), (gateway,), ()),))
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(mesh_node("n"))
        found = await stack.enter_async_context(mesh_gateway(folder, made, [node], secrets=secrets))
        for protocol in ("http", "grpc"):
            await found.healthy(f"m-vision-1-{protocol}", 1)
        yield found


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[MeshGateway]:
    async with secure(tmp_path, ir.Tls("gateway"), secret(FIRST)) as found:
        yield found


async def https(gateway: MeshGateway, context: ssl.SSLContext) -> int:
    """Status of an inference over HTTP/1.1."""
    url = f"https://localhost:{gateway.port}{INFER}"
    async with gateway.http.post(url, data=b"{}", ssl=context, headers={"x-api-key": KEY}) as got:
        return got.status


def channel(gateway: MeshGateway, *trusted: Pair) -> Any:
    roots = b"".join(each.certificate for each in trusted)
    return grpc.aio.secure_channel(
        f"localhost:{gateway.port}", grpc.ssl_channel_credentials(root_certificates=roots)
    )


async def test_callers_speak_http_1_http_2_and_grpc_over_tls(gateway: MeshGateway) -> None:
    assert await https(gateway, trusting(FIRST.certificate)) == 200
    async with channel(gateway, FIRST) as secured:
        call = secured.unary_unary(SERVICE + "ModelInfer")
        await call(VISION, metadata=[("x-api-key", KEY)], timeout=10)
    for offered, chosen in (
        (["h2", "http/1.1"], "h2"),
        (["http/1.1"], "http/1.1"),
        (["spdy/1"], None),
    ):
        context = trusting(FIRST.certificate, protocols=offered)
        _, writer = await asyncio.open_connection("localhost", gateway.port, ssl=context)
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == chosen
        writer.close()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
async def test_nobody_speaks_to_it_in_the_clear_or_by_an_old_tls(gateway: MeshGateway) -> None:
    with pytest.raises(aiohttp.ClientError):
        await gateway.send(INFER)
    refused = "TLSV1_ALERT_PROTOCOL_VERSION"
    for version, reason in ((ssl.TLSVersion.TLSv1_1, refused), (ssl.TLSVersion.TLSv1_2, "")):
        context = trusting(FIRST.certificate)
        context.set_ciphers("DEFAULT@SECLEVEL=0")
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = version
        assert await refusal(gateway, context) == reason


async def test_a_rotation_is_live_within_a_second_and_cuts_no_stream(gateway: MeshGateway) -> None:
    listeners = await gateway.stat("listener_manager.lds.update_success")
    async with channel(gateway, FIRST) as secured:
        stream = secured.stream_stream(SERVICE + "ModelStreamInfer")(
            metadata=[("x-api-key", KEY), (headers.MODEL_HINT, "vision")], timeout=20
        )
        await stream.write(VISION)
        assert await stream.read() == VISION
        began_s = time.monotonic()
        gateway.publish_secrets(secret(SECOND))
        await until(lambda: shows(gateway, SECOND), what="the second certificate")
        took_s = time.monotonic() - began_s
        # A second is what is promised; it takes some milliseconds.
        assert took_s < 1
        await stream.write(VISION)
        assert await stream.read() == VISION
        await stream.done_writing()
        assert await stream.code() is grpc.StatusCode.OK
    assert await https(gateway, trusting(SECOND.certificate)) == 200
    assert await gateway.stat("listener_manager.lds.update_success") == listeners
    assert await gateway.stat("listener_manager.listener_create_success") == 1


async def refusal(gateway: MeshGateway, context: ssl.SSLContext) -> str:
    """Why a handshake fails; empty when it does not."""
    try:
        _, writer = await asyncio.open_connection("localhost", gateway.port, ssl=context)
    except ssl.SSLError as error:
        return error.reason
    writer.close()
    return ""


async def shows(gateway: MeshGateway, made: Pair) -> bool:
    return await shown(gateway.port) == der(made)


async def test_a_secret_that_envoy_refuses_leaves_the_one_before_in_service(
    gateway: MeshGateway,
) -> None:
    broken = tls.certificate(FIRST.certificate, SECOND.key)
    gateway.publish_secrets(broken)
    await until(lambda: bool(gateway.recorder.nacks), what="a refusal")
    ((type_url, refused, message),) = gateway.recorder.nacks
    assert (type_url, refused) == (SECRET, (broken.name,))
    assert "private key" in message.lower()
    assert await shown(gateway.port) == der(FIRST)
    gateway.publish_secrets(secret(SECOND))
    await until(lambda: shows(gateway, SECOND), what="the second certificate")


async def test_callers_show_a_certificate_where_the_gateway_asks_for_one(tmp_path: Path) -> None:
    CALLER.put(tmp_path / "caller")
    of = ir.Tls("gateway", "callers")
    ca = tls.client_ca(CALLER.certificate)
    async with secure(tmp_path, of, secret(FIRST), ca) as gateway:
        known = trusting(FIRST.certificate, as_=CALLER, folder=str(tmp_path / "caller"))
        assert await https(gateway, known) == 200
        with pytest.raises(aiohttp.ClientError):
            await https(gateway, trusting(FIRST.certificate))

        # Whom the gateway trusts moves without its listener, too.
        gateway.publish_secrets(secret(FIRST), tls.client_ca(SECOND.certificate))
        await until(lambda: refuses(gateway, known), what="the caller refused")


async def refuses(gateway: MeshGateway, context: ssl.SSLContext) -> bool:
    connector = aiohttp.TCPConnector(ssl=context, force_close=True)
    try:
        async with aiohttp.ClientSession(connector=connector) as http:
            url = f"https://localhost:{gateway.port}{INFER}"
            async with http.post(url, data=b"{}", headers={"x-api-key": KEY}):
                return False
    except aiohttp.ClientError:
        return True
