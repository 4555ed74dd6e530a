"""Meshes made at random: whatever passes analysis has a meaning, and Envoy takes it."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace import ir, limits
from headrace.config.analyze import analyze, usable
from headrace.config.load import load
from headrace.resolve import resolve
from headrace_xds import envoy_schema
from headrace_xds.binaries import envoy
from headrace_xds.translate import translate
from headrace_xds.translate.bootstrap import bootstrap
from headrace_xds.translate.fragments import FragmentCache
from headrace_xds.translate.resources import CLUSTER, ROUTES
from headrace_xds.translate.standalone import standalone

EXAMPLES: Final = 30
ENVOY_EXAMPLES: Final = 12
REGIONS: Final = ("eu", "us", "ap")
VERSIONS: Final = (1, 2, 3)
Document = dict[str, Any]

NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
HOSTS = st.from_regex(r"(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]{0,9}[A-Za-z0-9])?", fullmatch=True)
HEADERS = st.from_regex(r"[a-z0-9-]{1,12}", fullmatch=True)
VALUES = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x2000, exclude_categories=["Cc"]))
DURATIONS = st.sampled_from(["1ms", "0.5s", "30s", "1m30s", "24h"])


def document(kind: str, name: str, spec: Mapping[str, Any]) -> Document:
    return {
        "apiVersion": "headrace.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {field: value for field, value in spec.items() if value is not None},
    }


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def target(*, weight: bool) -> st.SearchStrategy[Document]:
    chosen = st.one_of(
        st.fixed_dictionaries({"version": st.sampled_from(VERSIONS)}),
        st.fixed_dictionaries({"alias": st.sampled_from(["stable", "canary"])}),
    )
    shares = st.fixed_dictionaries({"weight": st.integers(0, 10_000)} if weight else {})
    return st.builds(lambda a, b: {**a, **b}, chosen, shares)


MATCH = st.fixed_dictionaries(
    {},
    optional={
        "hosts": st.lists(HOSTS, max_size=2),
        "headers": st.lists(st.fixed_dictionaries({"name": HEADERS, "value": VALUES}), max_size=2),
    },
)
RETRY = st.fixed_dictionaries(
    {},
    optional={
        "attempts": st.integers(0, 3),
        "budgetPercent": st.integers(0, 100),
        "perTryTimeout": DURATIONS,
    },
)
ROUTE = st.fixed_dictionaries(
    {"model": st.sampled_from(["echo", "other"])},
    optional={
        "match": MATCH,
        "split": st.lists(target(weight=True), max_size=3),
        "sticky": st.fixed_dictionaries({"header": HEADERS}),
        "mirror": st.builds(
            lambda a, b: {**a, "percent": b}, target(weight=False), st.integers(0, 100)
        ),
        "timeout": DURATIONS,
        "retry": RETRY,
        "rateLimit": st.fixed_dictionaries(
            {"requests": st.integers(1, 10_000_000)},
            optional={"per": DURATIONS, "burst": st.integers(1, 10_000_000)},
        ),
    },
)
TENSORS = [{"name": "data", "datatype": "BYTES", "shape": [-1]}]
MODEL = st.fixed_dictionaries(
    {
        "inputs": st.just(TENSORS),
        "outputs": st.just(TENSORS),
        "versions": st.just([{"version": each, "executor": "identity"} for each in VERSIONS]),
        "aliases": st.fixed_dictionaries(
            {"stable": st.sampled_from(VERSIONS), "canary": st.sampled_from(VERSIONS)}
        ),
        "balance": st.sampled_from(["round-robin", "least-request", "utilization", "least-loaded"]),
        "idempotent": st.booleans(),
    },
    optional={
        "placement": st.fixed_dictionaries({"pools": st.lists(st.sampled_from(REGIONS))}),
        "breaker": st.fixed_dictionaries(
            {
                "maxRequests": st.integers(1, 1_000_000),
                "maxPendingRequests": st.integers(1, 1_000_000),
            }
        ),
    },
)
TENANT = st.fixed_dictionaries(
    {
        "tier": st.sampled_from(["critical", "standard", "sheddable"]),
        "apiKeys": st.lists(
            st.fixed_dictionaries({"sha256": st.from_regex(r"[0-9a-f]{64}", fullmatch=True)}),
            max_size=2,
        ),
    }
)


TLS = st.fixed_dictionaries(
    {},
    optional={
        "tls": st.fixed_dictionaries({"secret": NAMES}, optional={"clientCa": NAMES}),
    },
)


@st.composite
def meshes(draw: st.DrawFn) -> str:
    """A configuration with random routes, models and tenants; most are usable."""
    regions = [
        {
            "name": name,
            "zones": [f"{name}-1"],
            "gateways": [{"name": f"gw-{name}", "port": 10_000 + index, **draw(TLS)}],
            "failover": draw(st.permutations([other for other in REGIONS if other != name])),
        }
        for index, name in enumerate(REGIONS)
    ]
    pools = [
        document("Pool", name, {"region": name, "zone": f"{name}-1", "gpu": {"type": "t4"}})
        for name in REGIONS
    ]
    documents = [
        document(
            "Mesh", draw(NAMES), {"regions": regions, "orcaPort": draw(st.integers(1, 65535))}
        ),
        *pools,
        *(document("Model", name, draw(MODEL)) for name in ("echo", "other")),
    ]
    kinds: list[tuple[str, st.SearchStrategy[Document]]] = [("Route", ROUTE), ("Tenant", TENANT)]
    for kind, specs in kinds:
        found = draw(st.dictionaries(NAMES, specs, max_size=3))
        documents += [document(kind, name, spec) for name, spec in found.items()]
    return "---\n".join(json.dumps(each, ensure_ascii=False) + "\n" for each in documents)


def meaning(text: str) -> ir.Mesh | None:
    """IR of a configuration, None where it has errors: those of the language, never of the text."""
    loaded = load([("a.yaml", text)])
    problems = analyze(loaded)
    if not usable(problems):
        assert all(problem.code < "HR0600" for problem in problems if problem.is_error), problems
        return None
    return resolve(loaded)


@given(meshes())
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
def test_what_passes_analysis_can_be_resolved_and_translated(text: str) -> None:
    mesh = meaning(text)
    if mesh is None:
        return
    for route in mesh.routes:
        assert sum(arm.weight for arm in route.arms) == limits.SPLIT_TOTAL
    cache = FragmentCache()
    first, *others = [gateway for region in mesh.regions for gateway in region.gateways]
    made = translate(mesh, first, cache)
    for gateway in others:
        # Only their listeners differ, so a cache that is shared must change nothing else.
        assert translate(mesh, gateway, cache)[CLUSTER] == made[CLUSTER]
        assert translate(mesh, gateway, cache)[ROUTES] == made[ROUTES]
    assert translate(mesh, first, FragmentCache()) == made


SOURCE_TYPE: Final = "envoy.config.core.v3.ConfigSource"


def config_sources(message: Message, schema: envoy_schema.EnvoySchema) -> Iterator[bytes]:
    """Every source of configuration that a message names, at any depth."""
    descriptor = message.DESCRIPTOR
    if descriptor.full_name == SOURCE_TYPE:
        yield message.SerializeToString(deterministic=True)
    if descriptor.full_name == "google.protobuf.Any":
        packed: Any = message
        yield from config_sources(schema.decode(packed.type_url, packed.value), schema)
        return
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        inside = [value] if isinstance(value, Message) else value
        for each in inside:
            yield from config_sources(each, schema)


@given(meshes())
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
def test_where_configuration_comes_from_is_said_in_the_same_bytes_everywhere(text: str) -> None:
    # A secret, a route table or a filter whose source is said in other bytes is one that Envoy
    # asks for anew, and a listener that waits for it may go live without it (envoy#47309).
    mesh = meaning(text)
    if mesh is None:
        return
    schema = envoy_schema.read(envoy())
    for gateway in (gateway for region in mesh.regions for gateway in region.gateways):
        made = translate(mesh, gateway, FragmentCache())
        bodies = [schema.decode(t, each.body) for t in made for each in made[t].values()]
        assert {source for body in bodies for source in config_sources(body, schema)} == {
            bytes.fromhex("1a002202080f3002")
        }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("envoy")


@given(meshes())
@settings(max_examples=ENVOY_EXAMPLES, suppress_health_check=list(HealthCheck))
def test_what_passes_analysis_is_taken_by_envoy(folder: Path, text: str) -> None:
    mesh = meaning(text)
    if mesh is None:
        return
    region = mesh.regions[0]
    (gateway,) = region.gateways
    config = bootstrap(
        gateway, zone=region.zones[0], xds=("127.0.0.1", 18000), admin=("127.0.0.1", 19000)
    )
    made = translate(mesh, gateway, FragmentCache())
    file = folder / "envoy.pb"
    file.write_bytes(standalone(config, made, {}, envoy_schema.read(envoy())))
    command = [str(envoy()), "--mode", "validate", "-c", str(file), "--log-level", "warn"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr
