"""Examples: each is right, says what it is, and knows its schema."""

import json
from pathlib import Path

import pytest

from headrace.config.analyze import analyze
from headrace.config.load import Loaded, load
from headrace.resolve import resolve

EXAMPLES = Path(__file__).parents[2] / "mesh-config" / "examples"
FILES = sorted(EXAMPLES.rglob("*.yaml"))
MODELINE = "# yaml-language-server: $schema="


def read(path: Path) -> Loaded:
    found = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    return load([(each.name, each.read_text()) for each in found])


WHOLE = sorted(path for path in EXAMPLES.iterdir() if path.is_dir() or path.suffix == ".yaml")


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: path.stem)
def test_an_example_has_no_problem_of_any_kind(path: Path) -> None:
    assert analyze(read(path)) == ()
    assert resolve(read(path)).routes


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_an_example_names_its_schema_and_then_says_what_it_is(path: Path) -> None:
    first, second = path.read_text().splitlines()[:2]
    assert first.startswith(MODELINE)
    assert json.loads((path.parent / first.removeprefix(MODELINE)).read_text())["$defs"]
    assert second.startswith("# ")


def test_the_local_example_is_the_mesh_that_up_starts() -> None:
    mesh = resolve(read(EXAMPLES / "local"))
    gateways = {g.name: (g.region, g.address, g.port) for r in mesh.regions for g in r.gateways}
    assert set(gateways.values()) == {("eu", "127.0.0.1", 10000), ("us", "127.0.0.1", 10001)}
    assert {region.name: region.failover for region in mesh.regions} == {
        "eu": ("us",),
        "us": ("eu",),
    }
    assert [(pool.name, pool.region, pool.gpu_type) for pool in mesh.pools] == [
        ("eu-a", "eu", "cpu"),
        ("us-a", "us", "cpu"),
    ]
    assert [(each.model, each.version) for each in mesh.versions] == [
        ("ranking", 1), ("ranking", 2), ("vision", 1), ("vision", 2),
    ]  # fmt: skip
    routes = {route.name: route for route in mesh.routes}
    assert [(arm.version, arm.weight) for arm in routes["vision"].arms] == [(1, 9_500), (2, 500)]
    assert routes["vision"].sticky_header == "x-user"
    assert routes["vision-beta"].headers == (("x-cohort", "beta"),)
    assert mesh.routes.index(routes["vision-beta"]) < mesh.routes.index(routes["vision"])
