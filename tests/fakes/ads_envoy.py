"""A real Envoy whose whole configuration comes over ADS, with resources written by hand."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from headrace_xds.binaries import envoy
from headrace_xds.messages import Variant
from tests.fakes.ads_resources import ADS, HOST


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


_API_TYPE = {Variant.DELTA: "DELTA_GRPC", Variant.SOTW: "GRPC"}


def _bootstrap(node_id: str, ads_port: int, variant: Variant) -> dict[str, Any]:
    address = {"socket_address": {"address": HOST, "port_value": ads_port}}
    return {
        "node": {"id": node_id, "cluster": "test", "locality": {"region": "eu", "zone": "eu-1"}},
        "admin": {"address": {"socket_address": {"address": HOST, "port_value": 0}}},
        "dynamic_resources": {
            "ads_config": {
                "api_type": _API_TYPE[variant],
                "transport_api_version": "V3",
                "set_node_on_first_message_only": True,
                "grpc_services": [
                    {
                        "envoy_grpc": {
                            "cluster_name": "xds",
                            "retry_policy": {
                                "retry_back_off": {"base_interval": "0.1s", "max_interval": "0.3s"}
                            },
                        }
                    }
                ],
            },
            "cds_config": ADS,
            "lds_config": ADS,
        },
        "static_resources": {
            "clusters": [
                {
                    "name": "xds",
                    "type": "STATIC",
                    "connect_timeout": "1s",
                    "typed_extension_protocol_options": {
                        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3"
                            ".HttpProtocolOptions",
                            "explicit_http_config": {"http2_protocol_options": {}},
                        }
                    },
                    "load_assignment": {
                        "cluster_name": "xds",
                        "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
                    },
                }
            ]
        },
    }


class AdsEnvoy:
    """What a test asks of a running Envoy."""

    def __init__(self, http: aiohttp.ClientSession, admin: str) -> None:
        self._http = http
        self._admin = admin

    async def get(self, port: int, path: str = "/") -> int:
        """Status of a request through a listener; 0 when nobody answers."""
        try:
            async with self._http.get(f"http://{HOST}:{port}{path}") as answer:
                await answer.read()
                return answer.status
        except aiohttp.ClientError:
            return 0

    async def hosts(self, cluster_name: str) -> int:
        """Endpoints of a cluster, -1 when Envoy does not have the cluster."""
        clusters = json.loads(await self._read("/clusters?format=json"))
        for status in clusters.get("cluster_statuses", []):
            if status["name"] == cluster_name:
                return len(status.get("host_statuses", []))
        return -1

    async def stat(self, name: str) -> int:
        """Value of a counter or gauge, 0 when it does not exist yet."""
        text = await self._read(f"/stats?usedonly&filter=^{name}$")
        return int(text.rpartition(":")[2]) if text.strip() else 0

    async def _read(self, path: str) -> str:
        async with self._http.get(f"http://{self._admin}{path}") as answer:
            return await answer.text()


@asynccontextmanager
async def ads_envoy(
    folder: Path,
    *,
    ads_port: int,
    node_id: str = "gateway/t",
    variant: Variant = Variant.DELTA,
) -> AsyncIterator[AdsEnvoy]:
    """Run an Envoy against an ADS server."""
    config, admin, log = folder / "envoy.json", folder / "admin", folder / "envoy.log"
    config.write_text(json.dumps(_bootstrap(node_id, ads_port, variant)))
    admin.unlink(missing_ok=True)
    arguments = ["-c", str(config), "--admin-address-path", str(admin), "--log-path", str(log)]
    arguments += ["--concurrency", "1", "--disable-hot-restart", "--log-level", "info"]
    arguments += ["--drain-time-s", "1"]
    process = await asyncio.create_subprocess_exec(str(envoy()), *arguments)
    try:
        async with asyncio.timeout(20):
            while not admin.exists() or not (address := admin.read_text().strip()):
                assert process.returncode is None, log.read_text()
                await asyncio.sleep(0.01)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as http:
            yield AdsEnvoy(http, address)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@asynccontextmanager
async def upstream() -> AsyncIterator[int]:
    """An HTTP server that answers 200 to everything; yields its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, HOST, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
