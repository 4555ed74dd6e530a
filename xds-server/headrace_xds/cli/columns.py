"""The columns of ``headrace get``, in one table: what is shown of each kind of thing."""

from collections.abc import Mapping, Sequence
from typing import Any

from headrace_xds.cli.tables import Column, age

Row = Mapping[str, Any]


def name(row: Row) -> object:
    """Name of an object."""
    return row["metadata"]["name"]


def condition(row: Row, kind: str) -> str:
    """A condition's status, or the reason why it does not hold."""
    for found in row.get("status", {}).get("conditions", ()):
        if found["type"] == kind:
            return "yes" if found["status"] == "True" else str(found["reason"])
    return ""


def message(row: Row) -> str:
    """What the conditions that do not hold say."""
    found = row.get("status", {}).get("conditions", ())
    return "; ".join(c["message"] for c in found if c["status"] != "True" and c["message"])


def split(row: Row) -> str:
    """Sides of a route and their weights, such as ``stable:95,2:5``."""
    arms = row["spec"].get("split", ())
    sides = [f"{arm.get('alias') or arm.get('version')}:{arm.get('weight', 100)}" for arm in arms]
    return ",".join(sides) or "stable:100"


def mirror(row: Row) -> str:
    """Version that gets a copy, and of how much."""
    found = row["spec"].get("mirror")
    if not found:
        return ""
    return f"{found.get('alias') or found.get('version')}:{found.get('percent', 100)}%"


def ready_models(row: Row) -> str:
    """How many of the model versions a node is to hold it holds."""
    models = row["models"]
    return f"{sum(m['state'] == 'ready' for m in models)}/{len(models)}"


def load_sum(row: Row, field: str) -> object:
    """A load number of a node over all its model versions."""
    load = row.get("load")
    return sum(version[field] for version in load["versions"]) if load else None


def weights(row: Row) -> str:
    """Nodes of an endpoint set with their weights; health where it is not good."""
    return ",".join(
        f"{e['node']}:{e['weight']}" + ("" if e["health"] == "healthy" else f"({e['health']})")
        for e in row["endpoints"]
    )


NAME = Column("NAME", name)
IN_EFFECT = Column("IN EFFECT", lambda row: condition(row, "InEffect"))
READY = Column("READY", lambda row: condition(row, "Ready"))
MESSAGE = Column("MESSAGE", message, wide=True)

OBJECTS: Mapping[str, Sequence[Column]] = {
    "Mesh": (
        NAME,
        Column("REGIONS", lambda row: [r["name"] for r in row["spec"]["regions"]]),
        Column(
            "GATEWAYS",
            lambda row: [g["name"] for r in row["spec"]["regions"] for g in r.get("gateways", ())],
        ),
        IN_EFFECT,
        MESSAGE,
    ),
    "Pool": (
        NAME,
        Column("REGION", lambda row: row["spec"]["region"]),
        Column("ZONE", lambda row: row["spec"]["zone"]),
        Column("GPU", lambda row: row["spec"]["gpu"]["type"]),
        READY,
        MESSAGE,
    ),
    "Model": (
        NAME,
        Column("VERSIONS", lambda row: [v["version"] for v in row["spec"]["versions"]]),
        Column(
            "ALIASES", lambda row: [f"{k}={v}" for k, v in row["spec"].get("aliases", {}).items()]
        ),
        READY,
        IN_EFFECT,
        Column("BALANCE", lambda row: row["spec"].get("balance"), wide=True),
        MESSAGE,
    ),
    "Route": (
        NAME,
        Column("MODEL", lambda row: row["spec"]["model"]),
        Column("SPLIT", split),
        Column("STICKY", lambda row: row["spec"].get("sticky", {}).get("header")),
        Column("MIRROR", mirror),
        IN_EFFECT,
        MESSAGE,
    ),
    "Tenant": (
        NAME,
        Column("TIER", lambda row: row["spec"].get("tier", "standard")),
        Column("KEYS", lambda row: len(row["spec"].get("apiKeys", ()))),
        IN_EFFECT,
        MESSAGE,
    ),
}

NODES = (
    Column("NAME", lambda row: row["name"]),
    Column("POOL", lambda row: row.get("pool")),
    Column("STATE", lambda row: row["state"]),
    Column("READY", ready_models),
    Column("QUEUE", lambda row: load_sum(row, "queue")),
    Column("RUNNING", lambda row: load_sum(row, "running")),
    Column("RPS", lambda row: row["load"]["rps"] if row.get("load") else None),
    Column("AGE", lambda row: age(row.get("stateAgeSeconds"))),
    Column("ADDRESS", lambda row: row.get("address"), wide=True),
    Column("ZONE", lambda row: row.get("zone"), wide=True),
    Column(
        "SIGNAL AGE", lambda row: row["load"]["ageSeconds"] if row.get("load") else None, wide=True
    ),
    Column("PROBLEM", lambda row: row.get("problem")),
)

VERSIONS = (
    Column("NODE", lambda row: row["node"]),
    Column("MODEL", lambda row: row["model"]),
    Column("VERSION", lambda row: row["version"]),
    Column("STATE", lambda row: row["state"]),
    Column("AGE", lambda row: age(row["stateAgeSeconds"])),
    Column("ATTEMPT", lambda row: row["attempt"], wide=True),
    Column("MESSAGE", lambda row: row["message"]),
)

ENDPOINTS = (
    Column("CLUSTER", lambda row: row["cluster"]),
    Column("ENDPOINTS", lambda row: len(row["endpoints"])),
    Column("WITHHELD", lambda row: row["withheld"]),
    Column("NODES", weights),
)
