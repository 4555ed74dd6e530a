"""Every code of the table: the change to a clean mesh that causes it, and where it is shown."""

import re
from pathlib import Path

import pytest

from headrace import limits
from headrace.config import problems
from headrace.config.problems import CODES, Severity
from tests.fakes.small_mesh import CLEAN, KEY, changed, problems_of, shown_by

H = "apiVersion: headrace.dev/v1alpha1"
ROUTE = f"---\n{H}\nkind: Route\nmetadata: {{name: %s}}\nspec: {{model: echo, %s}}\n"
MODEL = f"""\
---
{H}
kind: Model
metadata: {{name: %s}}
spec:
  inputs: [{{name: data, datatype: BYTES, shape: [1]}}]
  outputs: [{{name: data, datatype: BYTES, shape: [1]}}]
  versions: [{{version: 1, executor: identity}}]
"""
NODE = "{name: %s, address: %s, httpPort: 80, grpcPort: 81, orcaPort: %d}"
GATEWAYS = "gateways: [{name: gw-eu}]"
POOL = "spec: {region: eu, zone: eu-1, gpu: {type: t4}}"
SPLIT = "split: [{alias: stable, weight: 90}, {alias: canary, weight: 10}]"
MATCH = SPLIT + "\n  match: {headers: [%s]}"
BOMB = "\n".join(
    ["x: &x0 [" + ", ".join("abcdefghij") + "]"]
    + [f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 10)}]" for n in (1, 2, 3)]
)


def static(*nodes: str) -> str:
    listed = ", ".join(nodes)
    return POOL[:-1] + f", discovery: {{type: static, nodes: [{listed}]}}}}"


CASES: dict[str, tuple[str, str, str]] = {
    "HR0101": (
        changed("  aliases:", "  placement: {pools: [gpu]}\n  aliases:"),
        "$.spec.placement.pools[0]",
        "gpu]",
    ),
    "HR0102": (changed("model: echo", "model: ecko"), "$.spec.model", "ecko"),
    "HR0103": (changed("region: eu,", "region: ue,"), "$.spec.region", "ue,"),
    "HR0104": (changed("zone: eu-1,", "zone: eu-2,"), "$.spec.zone", "eu-2"),
    "HR0105": (changed("{alias: canary,", "{alias: canray,"), "$.spec.split[1].alias", "canray"),
    "HR0106": (changed("canary: 2", "canary: 3"), "$.spec.aliases.canary", "3}"),
    "HR0201": (
        CLEAN + f"---\n{H}\nkind: Mesh\nmetadata: {{name: other}}\n"
        "spec: {regions: [{name: us, zones: [us-1], gateways: [{name: gw-us, port: 1}]}]}\n",
        "$.kind",
        "Mesh",
    ),
    "HR0202": (
        changed("{alias: canary,", "{alias: canary, version: 2,"),
        "$.spec.split[1]",
        "{alias: canary",
    ),
    "HR0203": (
        changed(SPLIT, "split: [{alias: stable, weight: 0}]"),
        "$.spec.split",
        "[{alias: stable",
    ),
    "HR0204": (
        changed("zones: [eu-1]", "zones: [eu-1, eu-1]"),
        "$.spec.regions[0].zones[1]",
        "eu-1]",
    ),
    "HR0205": (
        changed(GATEWAYS, "gateways: [{name: gw-eu}, {name: gw-2}]"),
        "$.spec.regions[0].gateways[1]",
        "{name: gw-2}",
    ),
    "HR0206": (
        CLEAN + f"---\n{H}\nkind: Tenant\nmetadata: {{name: twin}}\n"
        f"spec: {{apiKeys: [{{sha256: {KEY}}}]}}\n",
        "$.spec.apiKeys[0].sha256",
        KEY,
    ),
    "HR0207": (
        CLEAN + ROUTE % ("twin", "timeout: 9s"),
        "$.spec.match",
        "{model: echo, timeout: 9s",
    ),
    "HR0208": (changed(POOL, static()), "$.spec.discovery", "{type: static"),
    "HR0209": (
        changed(GATEWAYS, GATEWAYS + "\n    failover: [eu]"),
        "$.spec.regions[0].failover",
        "[eu]",
    ),
    "HR0210": (changed("weight: 10}", "weight: 11}"), "$.spec.split", "[{alias: stable"),
    "HR0211": (
        changed(SPLIT, "split: [{alias: canary}]\n  mirror: {version: 2}"),
        "$.spec.mirror",
        "{version: 2}",
    ),
    "HR0212": (
        changed(
            "- {version: 2, executor: identity}",
            "- {version: 2, executor: identity}\n  - {version: 2, executor: other}",
        ),
        "$.spec.versions[2].version",
        "2, executor: other",
    ),
    "HR0213": (
        changed(SPLIT, MATCH % "{name: x-a, value: '1'}, {name: x-a, value: '2'}"),
        "$.spec.match.headers[1].value",
        "'2'",
    ),
    "HR0214": (
        changed(POOL, static(NODE % ("a", "10.0.0.1", 18082), NODE % ("b", "10.0.0.1", 18082))),
        "$.spec.discovery.nodes[1].httpPort",
        "80, grpcPort",
    ),
    "HR0215": (
        changed(
            "  inputs: [{name: data, datatype: BYTES, shape: [1]}]",
            "  inputs: [{name: data, datatype: BYTES, shape: [0]}]",
        ),
        "$.spec.inputs[0].shape",
        "[0]",
    ),
    "HR0216": (
        changed("timeout: 10s", "timeout: 10s\n  retry: {perTryTimeout: 11s}"),
        "$.spec.retry.perTryTimeout",
        "11s",
    ),
    "HR0217": (changed("timeout: 10s", "timeout: 200ms"), "$.spec.timeout", "200ms"),
    "HR0218": (changed("{alias: canary,", "{version: 1,"), "$.spec.split[1]", "{version: 1"),
    "HR0219": (
        changed(POOL, static(NODE % ("a", "10.0.0.1", 18083))),
        "$.spec.discovery.nodes[0].orcaPort",
        "18083",
    ),
    "HR0220": (
        changed(SPLIT, SPLIT + "\n  sticky: {header: x-headrace-tenant}"),
        "$.spec.sticky.header",
        "x-headrace-tenant",
    ),
    "HR0221": (
        changed(SPLIT, SPLIT + "\n  rateLimit: {requests: 10, burst: 5}"),
        "$.spec.rateLimit.burst",
        "5}",
    ),
    "HR0301": (CLEAN + MODEL % "plain", "$.metadata.name", "plain"),
    "HR0302": (
        CLEAN + f"---\n{H}\nkind: Tenant\nmetadata: {{name: mute}}\nspec: {{}}\n",
        "$.spec",
        "{}",
    ),
    "HR0303": (
        changed("  aliases:", "  batching: {maxQueueDelay: 200ms}\n  aliases:"),
        "$.spec.batching.maxQueueDelay",
        "200ms",
    ),
    "HR0304": (
        changed(
            GATEWAYS, GATEWAYS + "\n    failover: [us]\n  - {name: us, zones: [z], failover: [eu]}"
        ),
        "$.spec.regions[1]",
        "{name: us",
    ),
    "HR0305": (
        changed(SPLIT, "split: [{alias: canary, weight: 10}, {alias: stable, weight: 90}]"),
        "$.spec.split",
        "[{alias: canary",
    ),
    "HR0306": (
        CLEAN
        + (MODEL % "plain").replace("[{version: 1,", "[{version: 2, executor: a}, {version: 1,"),
        "$.spec.versions",
        "[{version: 2",
    ),
    "HR0307": (
        changed(
            GATEWAYS,
            GATEWAYS + "\n  - {name: us, zones: [z], failover: [eu],"
            " gateways: [{name: gw-us, port: 1}]}",
        ),
        "$.spec.regions[0]",
        "name: eu",
    ),
    "HR0308": (
        changed("  aliases:", "  placement: {pools: [gpus]}\n  aliases:")
        + f"---\n{H}\nkind: Pool\nmetadata: {{name: idle}}\n{POOL}\n",
        "$.metadata.name",
        "idle",
    ),
    "HR0309": (
        CLEAN + "".join(MODEL % f"m{n}" for n in range(limits.CONFIG_PROBLEMS + 1)),
        "$",
        "m199}",
    ),
    "HR0310": (
        changed(POOL, "spec: {region: us, zone: z, gpu: {type: t4}}").replace(
            GATEWAYS,
            GATEWAYS + "\n    failover: [ap]\n"
            "  - {name: us, zones: [z], failover: [eu], gateways: [{name: gw-us, port: 1}]}\n"
            "  - {name: ap, zones: [z], failover: [us], gateways: [{name: gw-ap, port: 2}]}",
        ),
        "$.spec.placement.pools",
        "inputs",
    ),
    "HR0311": (
        changed(SPLIT, "split: [{alias: stable}]\n  sticky: {header: x-user}"),
        "$.spec.sticky",
        "{header: x-user}",
    ),
    "HR0312": (
        changed(SPLIT, MATCH % "{name: x-a, value: '1'}"),
        "$.spec.match.headers",
        "[{name: x-a",
    ),
    "HR0313": (
        changed("  regions:", "  runtime: {retryPercent: 0, mirrorPercent: 0}\n  regions:"),
        "$.spec.runtime.retryPercent",
        "0, mirror",
    ),
    "HR0501": (
        changed("{name: gw-eu}", "{name: gw-eu, address: '::'}"),
        "$.spec.regions[0].gateways[0]",
        "{name: gw-eu",
    ),
    "HR0502": (CLEAN[: CLEAN.rindex("---")], "$", "apiVersion"),
    "HR0601": (CLEAN + "---\na: [1\nb: 2\n", "$", ":"),
    "HR0602": (changed("timeout: 10s", "timeot: 10s"), "$.spec.timeot", "timeot"),
    "HR0603": (
        changed("timeout: 10s", "timeout: 10s\n  timeout: 9s"),
        "$.spec.timeout",
        "timeout: 9s",
    ),
    "HR0604": (changed("model: echo", "model: 8"), "$.spec.model", "8"),
    "HR0605": (changed("weight: 10}", "weight: -1}"), "$.spec.split[1].weight", "-1"),
    "HR0606": (changed("name: demo", "name: Demo"), "$.metadata.name", "Demo"),
    "HR0607": (changed("  model: echo\n", ""), "$.spec", "split"),
    "HR0608": (changed("kind: Route", "kind: Rout"), "$.kind", "Rout"),
    "HR0609": (CLEAN.replace("v1alpha1", "v1", 1), "$.apiVersion", "headrace.dev/v1"),
    "HR0610": ("#" * (limits.CONFIG_FILE_BYTES + 1), "$", "#"),
    "HR0611": (CLEAN + "---\n" + "[" * (limits.CONFIG_DEPTH + 1) + "]" * 65 + "\n", "$", "[]"),
    "HR0612": (CLEAN + "---\n" + BOMB + "\n", "$", "a, b"),
    "HR0613": (
        CLEAN + f"---\n{H}\nkind: Tenant\nmetadata: {{name: demo}}\nspec: {{}}\n",
        "$.metadata.name",
        "demo",
    ),
    "HR0614": (changed("name: demo", "name: de\x00mo"), "$", "\x00mo"),
    "HR0615": (CLEAN + "---\n&a [*a]\n", "$", "&a"),
    "HR0616": (
        changed(POOL, POOL[:-1] + "".join(f", x{n}: 1" for n in range(201)) + "}"),
        "$",
        "x199",
    ),
    "HR0617": (changed("{name: demo}", "{<<: {name: demo}}"), "$", "<<"),
}
"""Codes whose problem comes with others; every other case has exactly one problem."""
TOGETHER = {"HR0213": {"HR0312"}, "HR0309": {"HR0301"}, "HR0616": {"HR0602"}}


def test_the_clean_mesh_has_no_problem() -> None:
    assert problems_of(CLEAN) == ()


ELSEWHERE = {"HR0701", "HR0107", "HR0503"}
"""What is not in the text: what an Envoy finds, see tests/e2e/test_gate.py, and what is wrong with
secrets, see test_config_secrets.py."""


def test_every_code_has_a_case() -> None:
    assert CASES.keys() == CODES.keys() - ELSEWHERE


@pytest.mark.parametrize("code", CASES)
def test_one_change_causes_one_problem_at_its_place(code: str) -> None:
    text, path, token = CASES[code]
    found = problems_of(text)
    assert {problem.code for problem in found} == {code, *TOGETHER.get(code, set())}
    (problem,) = [problem for problem in found if problem.code == code]
    assert problem.path == path
    assert shown_by(problem, text).startswith(token)


@pytest.mark.parametrize("code", CASES)
def test_messages_are_one_printable_line(code: str) -> None:
    for problem in problems_of(CASES[code][0]):
        assert problem.message.isprintable()
        assert re.fullmatch(r"a\.yaml:\d+:\d+: \$\S*: \S.*", problems.render(problem))


@pytest.mark.parametrize(
    "text",
    [
        changed(GATEWAYS, "gateways: [{name: a, port: 0}, {name: b, port: 0}]"),
        changed(SPLIT, "split: [{alias: stable, weight: 100}]\n  mirror: {alias: canary}"),
        changed(SPLIT, "split: [{alias: stable, weight: 9995}, {alias: canary, weight: 5}]"),
        changed(POOL, static(NODE % ("a", "10.0.0.1", 18082), NODE % ("b", "10.0.0.2", 18082))),
        changed("  aliases:", "  batching: {maxQueueDelay: 0ms}\n  aliases:"),
    ],
    ids=["free ports", "another version", "ten-thousandths", "nodes apart", "no waiting"],
)
def test_what_looks_like_a_mistake_and_is_none_is_let_be(text: str) -> None:
    assert problems_of(text) == ()


def test_a_gateway_that_speaks_tls_may_be_open_to_every_network() -> None:
    open_to_all = "{name: gw-eu, address: '::', tls: {secret: gateway}}"
    assert problems_of(changed("{name: gw-eu}", open_to_all)) == ()


def test_gateways_on_machines_of_their_own_may_share_a_port() -> None:
    text = changed(GATEWAYS, "gateways: [{name: a, address: '::'}, {name: b, address: 0.0.0.0}]")
    assert [problem.code for problem in problems_of(text)] == ["HR0501", "HR0501"]


def test_a_side_of_a_split_without_traffic_does_not_excuse_a_useless_mirror() -> None:
    split = "split: [{alias: stable, weight: 100}, {alias: canary, weight: 0}]"
    text = changed(SPLIT, split + "\n  mirror: {alias: stable}")
    assert [problem.code for problem in problems_of(text)] == ["HR0211"]


def test_severity_follows_the_range_of_the_code() -> None:
    for code, row in CODES.items():
        if code.startswith(("HR01", "HR06")):
            assert row.severity is Severity.ERROR, code
        if code.startswith("HR03"):
            assert row.severity < Severity.ERROR, code


def test_codes_are_in_order_and_never_used_twice() -> None:
    text = Path(problems.__file__).read_text()
    for family in ("HR01", "HR02", "HR03", "HR05", "HR06"):
        written = re.findall(rf'^    (?:# )?"({family}\d\d)": ', text, re.MULTILINE)
        assert written == sorted(set(written))
        assert written == [f"{family}{n:02d}" for n in range(1, len(written) + 1)]
