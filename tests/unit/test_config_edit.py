"""Edits of YAML: the object changes, comments and other documents stay as they are."""

import time

import pytest

from headrace.config.edit import NotFoundError, remove, split, upsert
from headrace.config.load import load
from tests.fakes.small_mesh import CLEAN

HEAD = "apiVersion: headrace.dev/v1alpha1\nkind: Tenant\n"
A = HEAD + "metadata: {name: a}\nspec: {}\n"
B = HEAD + "metadata: {name: b}\nspec: {}\n"
A2 = HEAD + "metadata: {name: a}\nspec: {tier: critical}\n"
MODELINE = "# yaml-language-server: $schema=mesh.schema.json\n"


def test_an_object_is_replaced_where_it_stands() -> None:
    text = f"# first\n{A}# behind\n--- # second\n{B}"
    assert upsert({"x.yaml": text}, A2) == {"x.yaml": f"# first\n{A2}# behind\n--- # second\n{B}"}


def test_comments_of_the_new_document_take_the_place_of_the_old() -> None:
    text = f"{MODELINE}# old\n{A}# old\n---\n{B}"
    changed = upsert({"x.yaml": text}, f"# new\n{A2}# new\n")
    assert changed == {"x.yaml": f"{MODELINE}# new\n{A2}# new\n---\n{B}"}


def test_what_is_there_already_changes_nothing() -> None:
    assert upsert({"x.yaml": CLEAN}, CLEAN) == {}
    assert upsert({"x.yaml": A + "---\n" + B}, B) == {}


def test_a_new_object_gets_a_file_of_its_own() -> None:
    assert upsert({"x.yaml": B}, "---\n# why\n" + A.rstrip("\n")) == {
        "tenant-a.yaml": "# why\n" + A
    }
    assert upsert({"tenant-a.yaml": B}, A) == {"tenant-a-2.yaml": A}


def test_several_objects_are_applied_at_once() -> None:
    changed = upsert({"x.yaml": A}, A2 + "---\n" + B + "---\n# nothing\n")
    assert changed == {"x.yaml": A2, "tenant-b.yaml": B}


def test_content_on_the_line_of_its_separator_is_replaced_as_a_whole() -> None:
    inline = (
        "--- {apiVersion: headrace.dev/v1alpha1, kind: Tenant, metadata: {name: a}, spec: {}}\n"
    )
    assert upsert({"x.yaml": B + inline + "---\n" + CLEAN}, A2) == {
        "x.yaml": B + "---\n" + A2 + "---\n" + CLEAN
    }
    assert upsert({"x.yaml": A2}, inline) == {"x.yaml": inline.removeprefix("--- ")}


def test_a_broken_document_is_left_alone() -> None:
    assert upsert({"x.yaml": f"a: [\n---\n{A}---\nb: }}\n"}, A2) == {
        "x.yaml": f"a: [\n---\n{A2}---\nb: }}\n"
    }


def test_a_text_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown field"):
        upsert({}, A + "specs: {}\n")
    with pytest.raises(ValueError, match="is defined"):
        upsert({}, A + "---\n" + A2)


def test_a_file_without_a_last_line_break_can_be_edited() -> None:
    assert upsert({"x.yaml": A + "---\n" + B.rstrip("\n")}, A2) == {
        "x.yaml": A2 + "---\n" + B.rstrip("\n")
    }
    changed = upsert({"x.yaml": A.rstrip("\n")}, A2.rstrip("\n"))
    assert load(list(changed.items())).ok


def test_windows_line_breaks_stay() -> None:
    text = f"{MODELINE}# first\n{A}---\n{B}".replace("\n", "\r\n")
    expected = f"{MODELINE}# first\n{A2}---\n{B}".replace("\n", "\r\n")
    assert upsert({"x.yaml": text}, A2) == {"x.yaml": expected}
    assert upsert({"x.yaml": text}, A) == {}
    assert upsert({"x.yaml": f"{A}---\n{B}"}, A2.replace("\n", "\r\n")) == {
        "x.yaml": f"{A2}---\n{B}"
    }


@pytest.mark.parametrize("head", [f"{MODELINE}# first\n", "%YAML 1.2\n---\n", "--- # first\n"])
def test_a_byte_order_mark_stays_before_all_else(head: str) -> None:
    text = f"\ufeff{head}{A}---\n{B}"
    assert upsert({"x.yaml": text}, A2) == {"x.yaml": f"\ufeff{head}{A2}---\n{B}"}
    assert upsert({}, f"\ufeff{A}") == {"tenant-a.yaml": A}


def test_many_objects_are_applied_in_time_that_grows_with_their_number() -> None:
    text = "---\n".join(A.replace("{name: a}", f"{{name: a-{n}}}") for n in range(2_000))
    wanted = text.replace("spec: {}", "spec: {tier: critical}")
    began = time.process_time()
    assert upsert({"x.yaml": text}, wanted) == {"x.yaml": wanted}
    # Typically 2 s; the bound is for what is not linear.
    assert time.process_time() - began < 20


def test_an_object_goes_with_its_comments_and_separator() -> None:
    text = f"{A}---\n# of b\n{B}---\n{CLEAN}"
    assert remove({"x.yaml": text}, "Tenant", "b") == {"x.yaml": f"{A}---\n{CLEAN}"}
    assert remove({"x.yaml": f"{MODELINE}# of a\n{text}"}, "Tenant", "a") == {
        "x.yaml": f"{MODELINE}---\n# of b\n{B}---\n{CLEAN}"
    }


def test_a_file_whose_last_object_goes_is_empty() -> None:
    assert remove({"x.yaml": A, "y.yaml": B + "---\n# only this\n"}, "Tenant", "b") == {
        "y.yaml": ""
    }


def test_an_object_that_is_not_there_cannot_go() -> None:
    with pytest.raises(NotFoundError, match='no Tenant "b"'):
        remove({"x.yaml": A}, "Tenant", "b")
    with pytest.raises(NotFoundError):
        remove({"x.yaml": A}, "Route", "a")


def test_documents_joined_are_the_file() -> None:
    text = f"%YAML 1.2\n---\n# a\n{A}# b\n...\n--- # c\n{B}\n\n"
    parts = split(text)
    assert "".join(part.text for part in parts) == text
    assert [(part.kind, part.name) for part in parts] == [("Tenant", "a"), ("Tenant", "b")]
