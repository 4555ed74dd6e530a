"""Folders of secrets: read whole, judged by their bytes, never shown."""

import asyncio
import logging
from pathlib import Path

import pytest

from headrace import ir, limits, names
from headrace_xds.binaries import envoy
from headrace_xds.envoy_schema import read
from headrace_xds.secrets import SecretStore, load_names, save_names
from headrace_xds.source import secrets
from headrace_xds.source.secrets import Material, Reading, read_secrets, readings
from headrace_xds.translate import tls
from tests.fakes.certificates import Pair, pair, swap

FIRST, SECOND = pair("first"), pair("second")
GATEWAY = ir.Gateway("eu", "eu", "127.0.0.1", 8443, ir.Tls("gateway", "callers"))
ENCRYPTED = """\
-----BEGIN ENCRYPTED PRIVATE KEY-----
MIGjMF8GCSqGSIb3DQEFDTBSMDEGCSqGSIb3DQEFDDAkBBDgVQ==
-----END ENCRYPTED PRIVATE KEY-----
"""


def material(made: Pair, ca: bytes = b"") -> Material:
    return Material(made.certificate, made.key, ca)


def test_a_secret_is_its_three_files(tmp_path: Path) -> None:
    FIRST.put(tmp_path / "gateway", ca=SECOND.certificate)
    (tmp_path / "callers").mkdir()
    (tmp_path / "callers" / "ca.crt").write_bytes(SECOND.certificate)
    assert read_secrets(tmp_path) == Reading(
        {
            "gateway": material(FIRST, SECOND.certificate),
            "callers": Material(ca=SECOND.certificate),
        }
    )


@pytest.mark.parametrize(
    ("files", "trouble"),
    [
        ({}, "its folder has neither tls.crt with tls.key nor ca.crt"),
        ({"tls.crt": FIRST.certificate}, "it has tls.crt and no tls.key"),
        ({"tls.key": FIRST.key}, "it has tls.key and no tls.crt"),
        (
            {"tls.crt": FIRST.certificate, "tls.key": SECOND.key},
            "tls.key does not belong to tls.crt",
        ),
        (
            {"tls.crt": FIRST.certificate[:100], "tls.key": FIRST.key},
            "tls.crt and tls.key cannot be used",
        ),
        (
            {"tls.crt": FIRST.certificate, "tls.key": ENCRYPTED.encode()},
            "tls.crt and tls.key cannot be used",
        ),
        ({"ca.crt": b"no certificate"}, "ca.crt holds no certificate in PEM"),
        (
            {"ca.crt": b"x" * (limits.SECRET_FILE_BYTES + 1)},
            f"ca.crt is larger than {limits.SECRET_FILE_BYTES} bytes",
        ),
    ],
    ids=["empty", "no key", "no certificate", "mismatch", "half", "encrypted", "no CA", "large"],
)
def test_what_cannot_be_used_says_why_and_shows_nothing(
    tmp_path: Path, files: dict[str, bytes], trouble: str
) -> None:
    folder = tmp_path / "gateway"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    reading = read_secrets(tmp_path)
    assert reading.usable == {}
    assert reading.troubles["gateway"].startswith(trouble)
    assert len(reading.troubles["gateway"]) < 80


def test_no_more_secrets_are_read_than_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SECRETS", 2)
    for name in "abc":
        FIRST.put(tmp_path / name)
    assert read_secrets(tmp_path).usable.keys() == {"a", "b"}


async def test_a_swap_is_seen_whole_and_once(tmp_path: Path) -> None:
    FIRST.put(tmp_path / "gateway")
    known = [read_secrets(tmp_path)]
    seen: asyncio.Queue[Reading] = asyncio.Queue()

    async def watch() -> None:
        async for reading in readings(tmp_path, lambda: known[-1]):
            known.append(reading)
            seen.put_nowait(reading)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(watch())
        async with asyncio.timeout(10):
            SECOND.put(tmp_path / "gateway")
            assert (await seen.get()).usable == {"gateway": material(SECOND)}
            # What was written in two steps is not read in between.
            (tmp_path / "gateway" / "..data" / "tls.crt").write_bytes(FIRST.certificate)
            (tmp_path / "gateway" / "..data" / "tls.key").write_bytes(FIRST.key)
            assert (await seen.get()).usable == {"gateway": material(FIRST)}
        assert seen.empty()
        task.cancel()


def store(*taken: Reading) -> SecretStore:
    made = SecretStore()
    for reading in taken:
        made.take(reading)
    return made


@pytest.mark.parametrize(
    ("later", "trouble"),
    [
        (Reading({}), "its folder is gone"),
        (Reading({}, {"gateway": "it is broken"}), "it is broken"),
    ],
    ids=["gone", "broken"],
)
def test_the_last_good_content_stays_in_service(later: Reading, trouble: str) -> None:
    made = store(Reading({"gateway": material(FIRST)}), later)
    given = made.resources(GATEWAY)[names.GATEWAY_CERTIFICATE]
    assert given == tls.certificate(FIRST.certificate, FIRST.key)
    state = made.states["gateway"]
    assert (state.has_certificate, state.was_usable, state.trouble) == (True, True, trouble)


def test_a_part_that_is_gone_stays_in_service_beside_a_new_one() -> None:
    with_ca = Reading({"callers": Material(ca=FIRST.certificate)})
    made = store(with_ca, Reading({"callers": material(SECOND)}))
    assert made.resources(GATEWAY)[names.CLIENT_CA] == tls.client_ca(FIRST.certificate)
    assert made.states["callers"].trouble == "a part of it that was in service is gone"


def test_a_gateway_is_given_what_it_names_and_nothing_else() -> None:
    made = store(Reading({"gateway": material(FIRST), "other": material(SECOND)}))
    assert made.resources(GATEWAY) == {
        names.GATEWAY_CERTIFICATE: tls.certificate(FIRST.certificate, FIRST.key),
        names.CLIENT_CA: None,
    }
    assert made.resources(ir.Gateway("us", "us", "127.0.0.1", 80)) == {}


def test_names_outlive_the_server_and_content_does_not(tmp_path: Path) -> None:
    path = tmp_path / "names.json"
    made = store(Reading({"gateway": material(FIRST)}))
    save_names(path, made.were_usable)
    assert path.read_text() == '["gateway"]'
    later = SecretStore(load_names(path))
    state = later.states["gateway"]
    assert (state.was_usable, state.has_certificate) == (True, False)
    assert state.trouble == "its folder is gone"


def test_no_representation_and_no_log_shows_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    reading = Reading({"gateway": material(FIRST, SECOND.certificate)})
    made = store(reading, Reading({}, {"gateway": "it is broken"}))
    given = made.resources(GATEWAY)
    shown = f"{reading!r} {made!r} {given!r} {made.states!r} {caplog.text}"
    body = next(filter(None, given.values()))
    opened = read(envoy()).to_json(body.type_url, body.body)
    assert opened == {"name": names.GATEWAY_CERTIFICATE, "tls_certificate": "[redacted]"}
    for line in (*FIRST.key.decode().splitlines()[1:-1], *SECOND.certificate.decode().split()[2:4]):
        assert line not in shown


def test_a_pair_is_checked_in_memory_and_leaves_no_descriptor_open(tmp_path: Path) -> None:
    before = sorted(path.name for path in Path("/proc/self/fd").iterdir())
    FIRST.put(tmp_path / "gateway")
    swap(tmp_path / "gateway", "..data")  # A link to itself cannot be read.
    assert read_secrets(tmp_path).usable == {}
    FIRST.put(tmp_path / "gateway")
    assert secrets.read_secrets(tmp_path).usable == {"gateway": material(FIRST)}
    assert sorted(path.name for path in Path("/proc/self/fd").iterdir()) == before
