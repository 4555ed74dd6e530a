"""A real Envoy whose whole configuration comes over delta ADS, with resources written by hand."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2
from google.protobuf import json_format
from google.protobuf.message import Message

# Importing these makes their types known to json_format, which resolves ``@type`` by name.
from envoy.extensions.filters.http.router.v3 import router_pb2  # noqa: F401  # isort: skip
from envoy.extensions.filters.network.http_connection_manager.v3 import (  # noqa: F401  # isort: skip
    http_connection_manager_pb2,
)

from headrace_xds.binaries import envoy
from headrace_xds.translate.resources import (
    CLUSTER,
    ENDPOINTS,
    LISTENER,
    ROUTES,
    Resource,
    resource,
)

HOST = "127.0.0.1"
_ADS = {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "15s"}
_ROUTER = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
_HCM = (
    "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3"
    ".HttpConnectionManager"
)


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _encode(type_url: str, name: str, message: Message, plain: dict[str, Any]) -> Resource:
    json_format.ParseDict(plain, message)
    return resource(type_url, name, message.SerializeToString(deterministic=True))


def cluster(name: str, **changes: Any) -> Resource:
    """A cluster that takes its endpoints over ADS."""
    plain = {
        "name": name,
        "type": "EDS",
        "connect_timeout": "1s",
        "eds_cluster_config": {"eds_config": _ADS},
        **changes,
    }
    return _encode(CLUSTER, name, cluster_pb2.Cluster(), plain)


def endpoints(name: str, *ports: int, address: str = HOST, weight: int = 1) -> Resource:
    """Endpoints of a cluster on this machine."""
    members = [
        {
            "endpoint": {"address": {"socket_address": {"address": address, "port_value": port}}},
            "load_balancing_weight": weight,
        }
        for port in ports
    ]
    plain = {"cluster_name": name, "endpoints": [{"lb_endpoints": members}] if members else []}
    return _encode(ENDPOINTS, name, endpoint_pb2.ClusterLoadAssignment(), plain)


def routes(name: str, target: str, **changes: Any) -> Resource:
    """A route configuration that sends everything to one cluster."""
    host = {
        "name": "all",
        "domains": ["*"],
        "routes": [{"match": {"prefix": "/"}, "route": {"cluster": target}}],
    }
    plain = {"name": name, "virtual_hosts": [host], **changes}
    return _encode(ROUTES, name, route_pb2.RouteConfiguration(), plain)


def listener(name: str, port: int, route_name: str, **changes: Any) -> Resource:
    """A listener that takes its routes over ADS."""
    manager = {
        "@type": _HCM,
        "stat_prefix": name,
        "rds": {"route_config_name": route_name, "config_source": _ADS},
        "http_filters": [{"name": "router", "typed_config": {"@type": _ROUTER}}],
    }
    plain = {
        "name": name,
        "address": {"socket_address": {"address": HOST, "port_value": port}},
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
        **changes,
    }
    return _encode(LISTENER, name, listener_pb2.Listener(), plain)


def _bootstrap(node_id: str, ads_port: int) -> dict[str, Any]:
    address = {"socket_address": {"address": HOST, "port_value": ads_port}}
    return {
        "node": {"id": node_id, "cluster": "test", "locality": {"region": "eu", "zone": "eu-1"}},
        "admin": {"address": {"socket_address": {"address": HOST, "port_value": 0}}},
        "dynamic_resources": {
            "ads_config": {
                "api_type": "DELTA_GRPC",
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
            "cds_config": _ADS,
            "lds_config": _ADS,
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
    folder: Path, *, ads_port: int, node_id: str = "gateway/t"
) -> AsyncIterator[AdsEnvoy]:
    """Run an Envoy against an ADS server."""
    config, admin, log = folder / "envoy.json", folder / "admin", folder / "envoy.log"
    config.write_text(json.dumps(_bootstrap(node_id, ads_port)))
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
