"""What every test can use: ``--golden=update``, the fixture ``golden``, patience of hypothesis."""

import hypothesis
import pytest

from tests.fakes.golden_files import Golden

# How long one example takes says more about the machine than about the code.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden",
        choices=("check", "update"),
        default="check",
        help="compare with the golden files, or rewrite them and delete orphans",
    )


@pytest.fixture
def golden(pytestconfig: pytest.Config) -> Golden:
    return Golden(update=pytestconfig.getoption("--golden") == "update")
