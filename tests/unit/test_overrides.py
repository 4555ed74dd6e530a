"""Overrides of the whole mesh: what may be written, what it becomes, what ``why`` says."""

import pytest
from envoy.service.runtime.v3 import rtds_pb2

from headrace import ir
from headrace.config import runtime as language
from headrace.config.explain import explain
from headrace.config.load import load
from headrace.resolve import resolve
from headrace.why.ask import why
from headrace.why.request import Request
from headrace_xds.translate import resources, runtime, translate
from headrace_xds.translate.fragments import FragmentCache
from tests.fakes.mesh_ir import KEY, gateway_of, mesh, route, served
from tests.fakes.small_mesh import CLEAN, changed, problems_of

INFER = "/v2/models/vision/infer"
LIMIT = ir.RateLimit(requests=1, per_s=1, burst=1)
PARTS = (
    served("vision", 1),
    served("vision", 2, shadow_max_requests=4),
    route("vision", "vision", (1, 10_000), mirror=ir.Mirror(2, 100), rate_limit=LIMIT),
)


def written(runtime: str) -> str:
    return changed("  regions:", f"  runtime: {runtime}\n  regions:")


def values(overrides: ir.Runtime) -> dict[str, object]:
    made = runtime.layer(overrides, FragmentCache())
    assert made.name == runtime.LAYER
    return dict(rtds_pb2.Runtime.FromString(made.body).layer)


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("{mirrorPercents: 1}", "HR0602", 'did you mean "mirrorPercent"?'),
        ("{envoy.reloadable_features.x: false}", "HR0602", "unknown field"),
        ("{overload.global_downstream_max_connections: 1}", "HR0602", "unknown field"),
        ("{retryPercent: -1}", "HR0605", "outside 0..100"),
        ("{ejectionPercent: 101}", "HR0605", "outside 0..100"),
        ("{leastLoadedBias: 10.5}", "HR0605", "outside 0"),
        ("{rateLimitPercent: 0.5}", "HR0604", "expected a whole number"),
        ("{mirrorPercent: true}", "HR0604", "expected a whole number"),
        ("{leastLoadedBias: much}", "HR0604", "expected a number"),
        ("5", "HR0604", "expected a mapping"),
    ],
)
def test_what_may_not_be_overridden_is_an_error_at_its_place(
    text: str, code: str, message: str
) -> None:
    (found,) = problems_of(written(text))
    assert (found.code, found.line) == (code, 5)
    assert message in found.message


def test_lifting_a_protection_is_a_warning_and_other_overrides_are_not() -> None:
    lifted = "{rateLimitPercent: 0, retryPercent: 99, ejectionPercent: 50}"
    assert [found.code for found in problems_of(written(lifted))] == ["HR0313"] * 3
    kept = "{rateLimitPercent: 100, mirrorPercent: 0, leastLoadedBias: 2, retryPercent: null}"
    assert problems_of(written(kept)) == ()


def test_without_overrides_the_layer_is_empty_and_there_all_the_same() -> None:
    assert values(ir.Runtime()) == {}
    value = mesh(*PARTS)
    made = translate(value, gateway_of(value), FragmentCache())
    assert list(made[resources.RUNTIME]) == [runtime.LAYER]


def test_every_override_of_the_language_reaches_the_layer() -> None:
    text = written(
        "{rateLimitPercent: 1, mirrorPercent: 2, retryPercent: 3, ejectionPercent: 4,"
        " leastLoadedBias: 0.5}"
    )
    found = resolve(load([("a.yaml", text)])).runtime
    assert found.source == ir.Source("Mesh", "small", "a.yaml", 1)
    assert values(found) == {
        runtime.RATE_LIMIT_PERCENT: 1,
        runtime.MIRROR_PERCENT: 2,
        runtime.RETRY_PERCENT: 3,
        runtime.LEAST_LOADED_BIAS: 0.5,
        **dict.fromkeys(runtime.EJECTION_PERCENT, 4),
    }
    named = {field.name for field in explain("mesh.spec.runtime").fields}
    assert len(named) == len(language.RuntimeSpec.__struct_fields__) == 5
    assert resolve(load([("a.yaml", CLEAN)])).runtime == ir.Runtime()


def test_an_override_changes_the_layer_and_no_other_resource() -> None:
    cache, before = FragmentCache(), mesh(*PARTS)
    after = mesh(*PARTS, runtime=ir.Runtime(mirror_percent=0, retry_percent=0))
    old, new = (translate(each, gateway_of(each), cache) for each in (before, after))
    assert {kind for kind in new if new[kind] != old[kind]} == {resources.RUNTIME}


def test_why_tells_what_is_overridden_and_what_is_so_in_effect() -> None:
    request = Request.of(INFER, given=(("x-api-key", KEY),), body=b"{}")
    plain = why(request, mesh(*PARTS))
    assert (plain.mirror and plain.mirror.percent, plain.retries) == (100, 2)
    assert plain.rate_limit is not None
    source = ir.Source("Mesh", "test", "mesh.yaml", 3)
    half = why(request, mesh(*PARTS, runtime=ir.Runtime(mirror_percent=50, source=source)))
    assert half.mirror is not None
    assert half.mirror.percent == 50
    (step,) = [step for step in half.steps if step.topic == "override"]
    assert (step.says.split(":")[0], step.place) == ("mirrorPercent of the mesh", "mesh.yaml:3")
    off = ir.Runtime(
        rate_limit_percent=0, mirror_percent=0, retry_percent=0, ejection_percent=0, source=source
    )
    none = why(request, mesh(*PARTS, runtime=off))
    assert (none.rate_limit, none.mirror, none.retries) == (None, None, 0)
    assert len([step for step in none.steps if step.topic == "override"]) == 4
