"""Small meshes as IR, for tests that start where the configuration has been resolved."""

import hashlib
from typing import Any

from headrace import ir
from headrace.assignment import Assignment, Batching

SOURCE = ir.Source("Model", "test", "test.yaml", 1)
KEY = "demo-key"
DEMO = ir.Tenant("demo", "standard", (hashlib.sha256(KEY.encode()).hexdigest(),))


def served(model: str, version: int, **changes: Any) -> ir.ServedVersion:
    """A version of a model, as gateways see it."""
    batching = Batching(max_batch_size=1, max_queue_delay_s=0, max_queue_size=1, queue_timeout_s=1)
    fields: dict[str, Any] = {
        "model": model,
        "version": version,
        "pools": ("pool",),
        "balance": "round-robin",
        "max_requests": 1024,
        "max_pending_requests": 256,
        "retry_budget_percent": 20,
        "idempotent": False,
        "shadow_max_requests": None,
        "assignment": Assignment(
            model=model,
            version=version,
            executor="identity",
            artifact="",
            inputs=(),
            outputs=(),
            batching=batching,
        ),
        "source": SOURCE,
    }
    return ir.ServedVersion(**{**fields, **changes})


def route(name: str, model: str, *arms: tuple[int, int], **changes: Any) -> ir.Route:
    """A route to arms of (version, weight)."""
    fields: dict[str, Any] = {
        "name": name,
        "model": model,
        "hosts": (),
        "headers": (),
        "arms": tuple(ir.Arm(*arm) for arm in arms),
        "sticky_header": None,
        "mirror": None,
        "timeout_s": 30.0,
        "retry": ir.Retry(attempts=2, per_try_timeout_s=None),
        "idempotent": False,
        "rate_limit": None,
        "source": SOURCE,
    }
    return ir.Route(**{**fields, **changes})


def mesh(*parts: ir.ServedVersion | ir.Route, port: int = 10000, **changes: Any) -> ir.Mesh:
    """A mesh of one region and one gateway."""
    gateway = ir.Gateway("eu", "eu", "127.0.0.1", port)
    fields: dict[str, Any] = {
        "name": "test",
        "orca_port": 18082,
        "regions": (ir.Region("eu", ("eu-a",), (gateway,), ()),),
        "pools": (),
        "versions": tuple(part for part in parts if isinstance(part, ir.ServedVersion)),
        "routes": tuple(part for part in parts if isinstance(part, ir.Route)),
        "tenants": (DEMO,),
    }
    return ir.Mesh(**{**fields, **changes})


def gateway_of(value: ir.Mesh) -> ir.Gateway:
    """The first gateway of a mesh."""
    return value.regions[0].gateways[0]
