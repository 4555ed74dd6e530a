"""What every test can use: ``--golden=update`` and the fixture ``golden``."""

import pytest

from tests.fakes.golden_files import Golden


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
