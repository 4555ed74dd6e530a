"""Every error of a configuration is given at once, and none that another one explains."""

from pathlib import Path

from headrace.config.analyze import analyze
from headrace.config.load import load

EXAMPLE = Path(__file__).parents[2] / "mesh-config" / "examples" / "local"


def errors(**edits: tuple[str, str]) -> list[str]:
    """Codes of the errors after one replacement in each file that is named."""
    files = []
    for path in sorted(EXAMPLE.glob("*.yaml")):
        old, new = edits.get(path.stem, ("", ""))
        text = path.read_text()
        assert old in text
        files.append((path.name, text.replace(old, new, 1) if old else text))
    return [problem.code for problem in analyze(load(files)) if problem.is_error]


def test_a_field_that_is_unknown_hides_no_reference_that_is_broken_elsewhere() -> None:
    found = errors(
        vision=("  sticky:\n", "  stickey:\n"),
        ranking=("    alias: canary\n    percent", "    alias: canery\n    percent"),
    )
    assert found == ["HR0105", "HR0602"]


def test_a_mesh_that_cannot_be_read_is_not_missed_as_well() -> None:
    assert errors(mesh=("  - name: eu\n", "  - nam: eu\n")) == ["HR0602", "HR0607"]


def test_a_model_that_cannot_be_read_is_not_missed_by_its_routes() -> None:
    assert errors(vision=("  idempotent: true", "  idempotent: maybe")) == ["HR0604"]


def test_a_document_that_is_no_object_may_be_what_is_missed() -> None:
    found = errors(mesh=("kind: Pool\n", "kind: Pol\n"))
    assert found == ["HR0608"]
