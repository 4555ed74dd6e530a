"""Secrets that a configuration names: what is refused, and what is only said."""

import pytest

from headrace.config.analyze import analyze
from headrace.config.load import load
from headrace.config.secrets import SecretState
from tests.fakes.small_mesh import changed, shown_by

TEXT = changed("{name: gw-eu}", "{name: gw-eu, tls: {secret: gateway, clientCa: callers}}")
PAIR = SecretState(has_certificate=True, was_usable=True)
CA = SecretState(has_ca=True, was_usable=True)


def found(**known: SecretState) -> list[tuple[str, str, str]]:
    problems = analyze(load([("a.yaml", TEXT)]), known)
    return [(p.code, shown_by(p, TEXT).split(",")[0].rstrip("}]"), p.message) for p in problems]


def test_secrets_that_are_there_are_no_problem() -> None:
    assert found(gateway=PAIR, callers=CA) == []


def test_offline_nothing_is_known_of_secrets_and_nothing_is_said() -> None:
    assert analyze(load([("a.yaml", TEXT)])) == ()


def test_a_secret_that_never_was_is_an_error_where_it_is_named() -> None:
    assert found(gateways=PAIR, callers=CA) == [
        (
            "HR0107",
            "gateway",
            'secret "gateway": there is no such secret; did you mean "gateways"?',
        )
    ]


@pytest.mark.parametrize(
    "state",
    [
        SecretState(has_certificate=True, was_usable=True, trouble="its folder is gone"),
        SecretState(was_usable=True, trouble="its folder is gone"),
    ],
    ids=["in service", "in service before the server started"],
)
def test_a_secret_that_was_usable_and_is_broken_is_a_warning(state: SecretState) -> None:
    assert found(gateway=state, callers=CA) == [
        ("HR0503", "gateway", 'secret "gateway": its folder is gone')
    ]


def test_a_secret_that_was_broken_from_the_start_is_an_error() -> None:
    broken = SecretState(trouble="tls.key does not belong to tls.crt")
    ((code, place, message),) = found(gateway=broken, callers=CA)
    assert (code, place) == ("HR0107", "gateway")
    assert message.startswith('secret "gateway": tls.key does not belong to tls.crt')


def test_a_secret_without_the_part_that_is_wanted_is_an_error_though_it_is_in_service() -> None:
    ((code, place, message),) = found(gateway=PAIR, callers=PAIR)
    assert (code, place) == ("HR0107", "callers")
    assert message.startswith('secret "callers": it has no ca.crt')
