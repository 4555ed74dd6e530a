"""What is compiled after many edits is what would be compiled from nothing, byte by byte."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace import limits
from headrace.config.load import Readings, load
from headrace.memo import Memo
from headrace_xds.compiler import Checked, check
from headrace_xds.translate.fragments import FragmentCache

HEAD = "apiVersion: headrace.dev/v1alpha1\nkind: "
NAMES = st.sampled_from(["a", "b", "c", "d"])
FILES = st.sampled_from(["one.yaml", "two.yaml", "three.yaml"])
MESH = HEAD + (
    "Mesh\nmetadata: {name: mesh}\nspec:\n  orcaPort: %d\n  regions:\n"
    "    - {name: eu, zones: [eu-a], gateways: [{name: gw, port: 1}, {name: gw2, port: 2}]}\n"
)
POOL = HEAD + "Pool\nmetadata: {name: %s}\nspec: {region: eu, zone: eu-a, gpu: {type: cpu}}\n"
TENANT = HEAD + "Tenant\nmetadata: {name: %s}\nspec: {apiKeys: [{sha256: '%s'}]}\n"
MODEL = HEAD + (
    "Model\nmetadata: {name: %s}\nspec:\n  idempotent: %s\n"
    "  inputs: [{name: x, datatype: FP32, shape: [1]}]\n"
    "  outputs: [{name: y, datatype: FP32, shape: [1]}]\n"
    "  versions: [{version: 1, executor: identity}, {version: %d, executor: identity}]\n"
    "  aliases: {stable: 1}\n  slo: {latency: %dms}\n"
)
ROUTE = HEAD + (
    "Route\nmetadata: {name: %s}\nspec:\n  model: %s\n"
    "  match: {headers: [{name: x-a, value: '%d'}]}\n"
    "  split: [{version: 1, weight: %d}]\n  mirror: {version: 1, percent: %d, maxRequests: %d}\n"
)


class Editing(RuleBasedStateMachine):
    """A folder that is edited, compiled by one cache all along and by a new one every time."""

    def __init__(self) -> None:
        super().__init__()
        self.documents: dict[tuple[str, str], str] = {}
        self.places: dict[tuple[str, str], str] = {}
        self.blanks: dict[str, int] = {}
        self.cache = FragmentCache()
        self.plain = FragmentCache()

    @initialize()
    def begin(self) -> None:
        self.put("Mesh", "mesh", MESH % 18082, "one.yaml")
        self.put("Pool", "a", POOL % "a", "one.yaml")

    def put(self, kind: str, name: str, text: str, file: str) -> None:
        self.documents[kind, name] = text
        self.places.setdefault((kind, name), file)

    @rule(port=st.sampled_from([18082, 18083]))
    def edit_mesh(self, port: int) -> None:
        self.put("Mesh", "mesh", MESH % port, "one.yaml")

    @rule(name=NAMES, file=FILES)
    def add_pool(self, name: str, file: str) -> None:
        self.put("Pool", name, POOL % name, file)

    @rule(name=NAMES, key=st.sampled_from(["a", "b"]), file=FILES)
    def edit_tenant(self, name: str, key: str, file: str) -> None:
        self.put("Tenant", name, TENANT % (name, key * 64), file)

    @rule(
        name=NAMES,
        harmless=st.sampled_from(["true", "false"]),
        version=st.sampled_from([2, 3]),
        latency=st.sampled_from([300, 400]),
        file=FILES,
    )
    def edit_model(self, name: str, harmless: str, version: int, latency: int, file: str) -> None:
        self.put("Model", name, MODEL % (name, harmless, version, latency), file)

    @rule(
        name=NAMES,
        model=NAMES,
        value=st.integers(1, 3),
        number=st.integers(0, 2),
        file=FILES,
    )
    def edit_route(self, name: str, model: str, value: int, number: int, file: str) -> None:
        text = ROUTE % (name, model, value, number, 10 + number, 1 + number)
        self.put("Route", name, text, file)

    @rule(kind=st.sampled_from(["Pool", "Tenant", "Model", "Route"]), name=NAMES)
    def remove(self, kind: str, name: str) -> None:
        self.documents.pop((kind, name), None)
        self.places.pop((kind, name), None)

    @rule(kind=st.sampled_from(["Pool", "Tenant", "Model", "Route"]), name=NAMES, file=FILES)
    def move(self, kind: str, name: str, file: str) -> None:
        if (kind, name) in self.places:
            self.places[kind, name] = file

    @rule(file=FILES, blanks=st.integers(0, 3))
    def shift(self, file: str, blanks: int) -> None:
        self.blanks[file] = blanks

    @invariant()
    def both_compile_the_same(self) -> None:
        files = self.files()
        # Encoded parts are kept by value, which other tests look at; by identity all the rest is.
        self.plain.readings, self.plain.memo = Readings(), Memo()
        warm, cold = check(files, self.cache), check(files, self.plain)
        assert not warm.failure
        assert said(warm) == said(cold)
        assert warm.objects == cold.objects
        assert warm.compiled == cold.compiled

    def files(self) -> dict[str, str]:
        texts: dict[str, list[str]] = {}
        for key, text in self.documents.items():
            texts.setdefault(self.places[key], []).append(text)
        return {
            file: "# a line\n" * self.blanks.get(file, 0) + "---\n".join(found)
            for file, found in texts.items()
        }


def said(checked: Checked) -> list[tuple[object, ...]]:
    return [(p.code, p.file, p.line, p.column, p.path, p.message) for p in checked.problems]


TestEditing = Editing.TestCase
TestEditing.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)


def test_the_same_text_is_the_same_object_wherever_it_stands() -> None:
    readings = Readings()
    text = "---\n".join(TENANT % (f"t{number}", f"{number:064x}") for number in range(3))
    first = load([("a.yaml", text)], readings)
    again = load([("b.yaml", "# moved\n" + text)], readings)
    assert [b.line - a.line for a, b in zip(first.objects, again.objects, strict=True)] == [1] * 3
    same = [a.object is b.object for a, b in zip(first.objects, again.objects, strict=True)]
    # The first document is read with the comment that stands before it.
    assert same == [False, True, True]


def test_the_limit_of_documents_is_kept() -> None:
    readings = Readings(limit=2)
    text = "---\n".join(TENANT % (f"t{number}", f"{number:064x}") for number in range(3))
    first = load([("a.yaml", text)], readings)
    again = load([("b.yaml", text)], readings)
    assert limits.CONFIG_DOCUMENTS > 2
    same = [a.object is b.object for a, b in zip(first.objects, again.objects, strict=True)]
    assert not all(same)
    assert first.objects[0].object == again.objects[0].object
