"""Text that would make a naive loader think for minutes: it is read or refused in linear time."""

import time

import pytest

from headrace.config.analyze import analyze
from headrace.config.load import load
from tests.fakes.small_mesh import CLEAN, changed

HEAD = "apiVersion: headrace.dev/v1alpha1\n"
MANY = 20_000
GATEWAYS = "gateways: [{name: gw-eu}]"


def listed(word: str) -> str:
    return ", ".join(f"{word}{n}" for n in range(MANY))


def models(count: int) -> str:
    """As many models as pools, each placed on one."""
    model, pool = CLEAN.split("---\n")[2], CLEAN.split("---\n")[1]
    parts = [CLEAN]
    for n in range(count):
        placed = model.replace("  aliases:", f"  placement: {{pools: [gpus-{n}]}}\n  aliases:")
        parts.append(placed.replace("name: echo}", f"name: echo-{n}}}"))
        parts.append(pool.replace("name: gpus}", f"name: gpus-{n}}}"))
    return "---\n".join(parts)


TEXTS = {
    "tag directives": "".join(f"%TAG !a{n}! x\n" for n in range(MANY)) + "--- a\n",
    "zones": changed("zones: [eu-1]", f"zones: [eu-1, {listed('z')}]"),
    "failovers": changed(GATEWAYS, f"{GATEWAYS}\n    failover: [{listed('r')}]"),
    "gateways": changed(GATEWAYS, GATEWAYS[:-1] + ", {name: g, port: 0}" * MANY + "]"),
    "placements": changed("  aliases:", f"  placement: {{pools: [{listed('p')}]}}\n  aliases:"),
    "aliases": changed("aliases: {", f"aliases: {{{listed('a').replace(',', ': 1,')}: 1, "),
    "models and pools": models(1_000),
    "equal objects": ("---\n" + HEAD + "kind: Tenant\nmetadata: {name: a}\nspec: {}\n") * 3_000,
}


@pytest.mark.parametrize("name", TEXTS)
def test_it_takes_time_that_grows_with_its_length(name: str) -> None:
    began = time.process_time()
    analyze(load([("a.yaml", TEXTS[name])]))
    # Typically below 1 s; what is not linear would take minutes.
    assert time.process_time() - began < 15


@pytest.mark.parametrize("before", ["", "\ufeff", "# why\n\n", "%YAML 1.2\n"])
def test_a_tag_directive_is_named_where_it_stands(before: str) -> None:
    text = f"{before}%TAG ! tag:x,2000:\n---\n{CLEAN}"
    (problem,) = load([("a.yaml", text)]).problems
    assert (problem.code, problem.line) == ("HR0617", before.count("\n") + 1)


def test_what_looks_like_a_directive_in_a_text_is_text() -> None:
    label = changed("{name: demo}", '\n  name: demo\n  labels: {a: "x\n\n   %TAG"}')
    assert load([("a.yaml", label)]).problems == ()
