"""The mesh language against random text, random objects and random changes."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from headrace import ir, limits
from headrace.config import edit, schema
from headrace.config.analyze import analyze, usable
from headrace.config.chunks import chunks
from headrace.config.load import load
from headrace.config.write import write
from headrace.resolve import resolve, weights
from tests.fakes.small_mesh import CLEAN

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
FORMS = {
    "duration": st.integers(0, 86_400_000).map("{}ms".format),
    "some-time": st.one_of(
        st.integers(1, 86_400).map("{}s".format), st.just("1m30s"), st.just("0.5h")
    ),
    "size": st.integers(0, 1024).map("{}TiB".format),
    "address": st.ip_addresses().map(str),
}
TOKENS = [
    "\n", " ", "  ", "\t", "- ", ": ", "? ", "---\n", "...\n", "{", "}", "[", "]", ",", "#", "&a ",
    "*a", "!!str ", "<<: ", "|", ">", "'", '"', "%", "@", "`", "~", "null", "0", "-1", "1e9",
    "on", "stable", "canary", "echo", "weight: 3", "\x00", "\u2028", "é", "\ud800", "\ufeff",
    "version: 2", "timeout: 0s", "failover: [us]", "Mesh", "Route",
]  # fmt: skip


def values(found: inspect.Type) -> st.SearchStrategy[object]:
    """Right values of a type of the language."""
    match found:
        case inspect.Metadata():
            form = (found.extra or {}).get("form")
            return FORMS[form] if form else values(found.type)
        case inspect.UnionType():
            return st.one_of(*map(values, found.types))
        case inspect.StructType():
            fields = {field.name: values(field.type) for field in found.fields}
            return st.builds(found.cls, **fields)
        case inspect.VarTupleType():
            low, high = found.min_length or 0, min(found.max_length or 3, 3)
            lists = st.lists(values(found.item_type), min_size=low, max_size=high)
            return lists.map(tuple)
        case inspect.DictType():
            return st.dictionaries(values(found.key_type), values(found.value_type), max_size=3)
    return scalars(found)


def scalars(found: inspect.Type) -> st.SearchStrategy[object]:
    match found:
        case inspect.StrType():
            return st.from_regex(found.pattern, fullmatch=True) if found.pattern else ANY_TEXT
        case inspect.IntType():
            low = found.ge if found.ge is not None else -(10**6)
            return st.integers(low, found.le if found.le is not None else 10**6)
        case inspect.FloatType():
            return st.floats(found.ge, found.le, allow_nan=False, allow_infinity=False)
        case inspect.LiteralType():
            return st.sampled_from(found.values)
        case inspect.BoolType():
            return st.booleans()
    assert isinstance(found, inspect.NoneType), found
    return st.none()


@pytest.mark.parametrize("kind", schema.KINDS)
@given(st.data())
def test_any_object_is_read_back_as_it_was_written(kind: str, data: st.DataObject) -> None:
    made = data.draw(values(inspect.type_info(schema.KINDS[kind])))
    loaded = load([("a.yaml", write(made))])  # type: ignore[arg-type]
    assert loaded.problems == ()
    assert [placed.object for placed in loaded.objects] == [made]


def check(text: str) -> None:
    """Whatever the text is: no crash, real places, and an IR where there is no error."""
    loaded = load([("a.yaml", text)])
    problems = analyze(loaded)
    lines = text.split("\n")
    for problem in problems:
        assert 1 <= problem.line <= len(lines)
        assert 1 <= problem.column <= len(lines[problem.line - 1]) + 1
        assert problem.message.isprintable()
        assert problem.path.startswith("$")
    if usable(problems):
        sound(resolve(loaded))


def sound(mesh: ir.Mesh) -> None:
    """What every program may rely on."""
    served = [(each.model, each.version) for each in mesh.versions]
    assert served == sorted(set(served))
    for route in mesh.routes:
        assert sum(arm.weight for arm in route.arms) == limits.SPLIT_TOTAL
        assert all(arm.weight > 0 for arm in route.arms)
        assert {(route.model, arm.version) for arm in route.arms} <= set(served)
    names = [route.name for route in mesh.routes]
    assert len(set(names)) == len(names)
    for parts in (mesh.regions, mesh.pools, mesh.tenants):
        assert [part.name for part in parts] == sorted(part.name for part in parts)


@given(st.text(max_size=200))
def test_random_text_has_problems_at_real_places(text: str) -> None:
    check(text)


@given(st.lists(st.sampled_from(TOKENS), max_size=40).map("".join))
def test_random_tokens_have_problems_at_real_places(text: str) -> None:
    check(text)


CHANGES = st.lists(
    st.tuples(st.integers(0, len(CLEAN)), st.integers(0, 12), st.sampled_from(["", *TOKENS])),
    min_size=1,
    max_size=4,
)


@given(CHANGES)
def test_a_damaged_configuration_has_problems_at_real_places(
    changes: Sequence[tuple[int, int, str]],
) -> None:
    text = CLEAN
    for start, removed, added in changes:
        text = text[:start] + added + text[start + removed :]
    check(text)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=100), st.integers(100, 10**5))
def test_weights_sum_exactly_and_keep_every_side(shares: list[int], total: int) -> None:
    if not any(shares):
        shares[0] = 1
    made = weights(shares, total)
    assert sum(made) == total
    assert all((weight > 0) == (share > 0) for weight, share in zip(made, shares, strict=True))
    exact = [share * total / sum(shares) for share in shares]
    # A side is a whole step off at most, except to keep sides that round to nothing.
    slack = sum(0 < each < 1 for each in exact)
    assert all(abs(w - e) < 1 + slack for w, e in zip(made, exact, strict=True))


TENANTS = ["a", "b", "c", "d"]
COMMENTS = st.sampled_from(["", "# one\n", "\n# two\n\n", "# ---\n"])


@st.composite
def files(draw: st.DrawFn) -> tuple[dict[str, str], dict[str, str]]:
    """Files whose documents are surrounded by comments, and the text of each document."""
    parts: list[str] = []
    found: dict[str, str] = {}
    for name in draw(st.permutations(TENANTS)):
        separator = draw(st.sampled_from(["---\n", "--- # next\n", "...\n---\n"]))
        content = (
            "apiVersion: headrace.dev/v1alpha1\n# inside\n"
            f"kind: Tenant\nmetadata: {{name: {name}}}\nspec: {{}}\n"
        )
        found[name] = draw(COMMENTS) + content + draw(COMMENTS)
        parts.append((separator if parts else draw(st.sampled_from(["", "---\n"]))) + found[name])
    cut = draw(st.integers(1, len(parts)))
    # A file may not begin with the end of a document.
    halves = {"x.yaml": "".join(parts[:cut]), "y.yaml": "".join(parts[cut:]).removeprefix("...\n")}
    return {file: text for file, text in halves.items() if text}, found


@given(files(), st.sampled_from(TENANTS))
def test_an_edit_keeps_every_other_document_byte_by_byte(
    made: tuple[dict[str, str], dict[str, str]], name: str
) -> None:
    before, texts = made
    fresh = f"apiVersion: headrace.dev/v1alpha1\nkind: Tenant\nmetadata: {{name: {name}}}\n"
    changed = edit.upsert(before, fresh + "spec: {tier: critical}\n")
    removed = edit.remove(before, "Tenant", name)
    assert len(changed) == len(removed) == 1
    for other in set(TENANTS) - {name}:
        assert any(texts[other] in text for text in {**before, **changed}.values())
        assert any(texts[other] in text for text in {**before, **removed}.values())
    after = load(sorted({**before, **changed}.items()))
    assert after.problems == ()
    tiers = {p.name: o.spec.tier for p, o in after.each(schema.Tenant)}
    assert tiers == {each: "critical" if each == name else "standard" for each in TENANTS}
    left = load(sorted({**before, **removed}.items()))
    assert {p.name for p in left.objects} == set(TENANTS) - {name}
    assert edit.upsert(before, texts[name]) == {}


@given(st.lists(st.sampled_from(TOKENS + CLEAN.splitlines(keepends=True)), max_size=60))
def test_chunks_joined_are_the_text(parts: list[str]) -> None:
    text = "".join(parts)
    found = chunks(text)
    assert "".join(chunk.text for chunk in found) == text
