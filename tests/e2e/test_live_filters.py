"""Filters whose configuration varies, on the real Envoy: an edit is live and cuts no stream."""

import hashlib
from pathlib import Path

import pytest
from envoy.config.core.v3 import extension_pb2

from headrace import headers, ir
from headrace_xds.translate import filters, listeners, resources, translate
from headrace_xds.translate.fragments import FragmentCache
from headrace_xds.translate.packing import ads, seconds
from headrace_xds.translate.resources import Resource, resource
from tests.fakes import mesh_gateway
from tests.fakes.ads_recorder import until
from tests.fakes.mesh_gateway import ALWAYS, INFER, MeshGateway, running
from tests.fakes.mesh_ir import DEMO, KEY, gateway_of, mesh, route, served

pytestmark = pytest.mark.e2e

PARTS = (served("vision", 1), route("vision", "vision", *ALWAYS))
OTHER = ir.Tenant("other", "standard", (hashlib.sha256(b"other-key").hexdigest(),))
LISTENERS_CHANGED = "listener_manager.listener_modified"
LIMIT = ir.RateLimit(requests=1, per_s=600, burst=1)


def limited(tenants: tuple[ir.Tenant, ...]) -> ir.Mesh:
    version, plain = served("vision", 1), route("vision", "vision", *ALWAYS, rate_limit=LIMIT)
    return mesh(version, plain, port=0, tenants=tenants)


async def settings(gateway: MeshGateway) -> dict[str, str]:
    """What was updated, but filters and the route tables that name their buckets."""
    found = await gateway.updates()
    moving = ("extension_config_discovery", "rds.")
    return {n: v for n, v in found.items() if not any(part in n for part in moving)}


async def answered(gateway: MeshGateway, status: int, key: str) -> None:
    async def is_answered() -> bool:
        return (await gateway.send(INFER, key=key)).status == status

    await until(is_answered, what=f"{status} for {key}")


async def test_keys_and_limits_change_under_a_stream_without_a_new_listener(tmp_path: Path) -> None:
    async with running(tmp_path, *PARTS) as (gateway, nodes):
        call = gateway.stream((("x-api-key", KEY), (headers.MODEL_HINT, "vision")))
        await call.write(b"first")
        assert await call.read() == b"first"
        before = await settings(gateway)

        gateway.publish(limited((DEMO, OTHER)), nodes)
        await answered(gateway, 200, "other-key")
        await answered(gateway, 429, "other-key")
        gateway.publish(limited((OTHER,)), nodes)
        await answered(gateway, 401, KEY)

        assert {"listener_manager.lds.update_success", LISTENERS_CHANGED} <= before.keys()
        assert await settings(gateway) == before
        assert await gateway.stat("listener_manager.total_listeners_draining") == 0
        # It was let in before its key went.
        for body in (b"second", b"third"):
            await call.write(body)
            assert await call.read() == body
        await call.done_writing()
        assert (await call.code()).name == "OK"


def broken(name: str) -> Resource:
    value = mesh(*PARTS, port=0)
    made = translate(value, gateway_of(value), FragmentCache())[resources.EXTENSION][name]
    message = extension_pb2.TypedExtensionConfig.FromString(made.body)
    message.typed_config.value = message.typed_config.value.replace(b"function", b"funktion")
    return resource(resources.EXTENSION, name, message.SerializeToString())


async def test_a_filter_that_envoy_refuses_leaves_the_one_before(tmp_path: Path) -> None:
    async with running(tmp_path, *PARTS) as (gateway, _):
        gateway.publish_only(resources.EXTENSION, broken(filters.AUTHENTICATE))
        await until(lambda: bool(gateway.recorder.nacks), what="a refusal")
        ((type_url, names, _text),) = gateway.recorder.nacks
        assert (type_url, names) == (resources.EXTENSION, (filters.AUTHENTICATE,))
        assert (await gateway.send(INFER)).status == 200
        assert (await gateway.send(INFER, key="other-key")).status == 401


async def test_a_gateway_whose_filter_never_came_refuses_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = ads()
    impatient.initial_fetch_timeout = seconds(0.5)
    monkeypatch.setattr(listeners, "ads", lambda: impatient)

    def without(value: ir.Mesh, gateway: ir.Gateway, cache: FragmentCache) -> object:
        made = translate(value, gateway, cache)
        kept = {n: r for n, r in made[resources.EXTENSION].items() if n != filters.AUTHENTICATE}
        return {**made, resources.EXTENSION: kept}

    monkeypatch.setattr(mesh_gateway, "translate", without)
    async with running(tmp_path, *PARTS) as (gateway, nodes):

        async def listens() -> bool:
            return await gateway.stat("listener_manager.workers_started") == 1

        await until(listens, what="a gateway that waited for its filter in vain")
        for key in (KEY, "other-key", None):
            assert (await gateway.send(INFER, key=key)).status == 500
        assert not any(node.seen for node in nodes)
        value = mesh(*PARTS, port=0)
        late = translate(value, gateway_of(value), FragmentCache())[resources.EXTENSION]
        gateway.publish_only(resources.EXTENSION, *late.values())
        await answered(gateway, 200, KEY)
