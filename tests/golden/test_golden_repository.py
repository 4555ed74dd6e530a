"""Assignments to Triton's config.pbtxt, as files."""

from pathlib import Path

import msgspec
import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from headrace_models import catalogue, pbtxt
from tests.fakes.golden_files import Golden
from tests.fakes.model_server import assigned, echo

OUT = Path(__file__).parent / "out"
WEIGHTS = {"network": "efficientnet-lite0", "threads": "1", "weights": "/cache/w.safetensors"}


def test_every_kind_of_assignment_gives_the_expected_configuration(golden: Golden) -> None:
    unbatched = echo("BYTES", {"delay_ms": "5"}, max_batch_size=0)
    odd = msgspec.structs.replace(
        echo(parameters={"delay_ms": 'a "quoted"\nänd \\ line'}), instances=3, version=12
    )
    configurations = {
        "vision.pbtxt": (assigned("vision", 1), WEIGHTS),
        "ranking.pbtxt": (assigned("ranking", 2), WEIGHTS),
        "echo-unbatched.pbtxt": (unbatched, {}),
        "echo-odd.pbtxt": (odd, {}),
    }
    texts = {
        name: pbtxt.config(assignment, catalogue.check(assignment), parameters)
        for name, (assignment, parameters) in configurations.items()
    }
    golden.check(OUT, "*.pbtxt", texts)


@pytest.mark.parametrize("path", sorted(OUT.glob("*.pbtxt")), ids=lambda path: path.stem)
def test_every_expected_configuration_is_one_by_tritons_own_schema(path: Path) -> None:
    parsed = text_format.Parse(path.read_text(), model_config_pb2.ModelConfig())
    assert parsed.backend == "python"
    assert (parsed.max_batch_size > 0) == parsed.HasField("dynamic_batching")
