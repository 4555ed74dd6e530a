"""``why`` on meshes and requests made at random: an answer to everything, and one that adds up."""

import re
from typing import Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace import limits, names
from headrace.config.analyze import analyze, usable
from headrace.config.load import load
from headrace.refusals import Refusal
from headrace.resolve import resolve
from headrace.why.ask import why
from headrace.why.explanation import Endpoint, Step
from headrace.why.places import Places
from headrace.why.request import GRPC, Request, frame
from tests.property.test_config_translation import REGIONS, meshes

EXAMPLES: Final = 60
FILE: Final = "a.yaml"
OTHER = st.text(max_size=20)
PATHS = st.one_of(
    st.sampled_from(
        [
            "/v2", "/v2/health/live", "/v2/models/echo/ready", "/v2/models/echo/infer",
            "/v2/models/other/versions/2/infer", "/v2/models/echo/versions/9/infer",
            "/inference.GRPCInferenceService/ModelInfer", "/grpc.health.v1.Health/Check",
            "/inference.GRPCInferenceService/ModelStreamInfer",
            "/inference.GRPCInferenceService/ModelReady",
        ]
    ),
    st.builds("/v2/models/{}/versions/{}".format, OTHER, OTHER),
    OTHER,
)  # fmt: skip
HEADERS = st.one_of(
    st.tuples(
        st.sampled_from(["x-api-key", "authorization", "headrace-model", "headrace-version",
                         "grpc-encoding", "upgrade", "connection", "content-encoding", "host"]),
        st.one_of(OTHER, st.sampled_from(["echo", "other", "1", "2", "identity", "Bearer x"])),
    ),
    st.tuples(st.just("content-type"), st.sampled_from([GRPC, f"{GRPC}-web", "application/json"])),
    st.tuples(OTHER, OTHER),
)  # fmt: skip
BODIES = st.one_of(
    st.binary(max_size=40),
    st.builds(frame, st.binary(max_size=40)),
    st.sampled_from([frame(b"\x0a\x04echo"), frame(b"\x0a\x05other\x12\x012"), b'{"inputs":[]}']),
)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Any request; many have what lets them through the first steps."""
    given_ = draw(st.lists(HEADERS, max_size=4))
    body = draw(BODIES)
    host = draw(st.sampled_from(["localhost", "a.example:80"]) | OTHER)
    method = draw(st.sampled_from(["GET", "POST", "HEAD"]) | OTHER)
    return Request.of(draw(PATHS), method=method, host=host, given=given_, body=body)


def lines_of(steps: tuple[Step, ...]) -> list[str]:
    found = [step.place for step in steps]
    return [*found, *(place for step in steps for place in lines_of(step.notes))]


@given(meshes(), st.lists(requests(), min_size=1, max_size=8), st.booleans())
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), deadline=None)
def test_every_request_of_every_mesh_has_an_answer_that_adds_up(
    text: str, asked: list[Request], is_known: bool
) -> None:
    loaded = load([(FILE, text)])
    if not usable(analyze(loaded)):
        return
    mesh = resolve(loaded)
    node = Endpoint(node="n", pool=REGIONS[1], address="10.0.0.1", port=1)
    known = {
        names.cluster(served.model, served.version, "http"): [node] for served in mesh.versions
    }
    gateways = [gateway for region in mesh.regions for gateway in region.gateways]
    for index, request in enumerate(asked):
        said = why(
            request,
            mesh,
            gateway=gateways[index % len(gateways)],
            places=Places(loaded),
            endpoints=known if is_known else None,
        )
        assert bool(said.refusal) != bool(said.cluster or said.decided_by == "random")
        assert said.refusal in {"", *(refusal.code for refusal in Refusal)}
        if said.sides:
            assert sum(side.weight for side in said.sides) == limits.SPLIT_TOTAL
        if said.decided_by == "sticky":
            assert said.version in {side.version for side in said.sides}
        assert [each.priority for each in said.priorities] == list(range(len(said.priorities)))
        last = text.count("\n")
        for place in filter(None, lines_of(said.steps)):
            assert re.fullmatch(rf"{FILE}:([0-9]+)", place)
            assert 1 <= int(place.rpartition(":")[2]) <= last
