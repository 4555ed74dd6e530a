"""What surrounds a tritonserver process: paths, command line, restarts, log lines, leftovers."""

from pathlib import Path

import pytest

from headrace import limits
from headrace_models import command, layout, leftovers, probe, restarts
from headrace_models.binaries import Binaries
from headrace_models.failure import Failure
from headrace_models.loglines import LogLines

PLACES = layout.layout(Path("/s"), Path("/s/agent.sock"))
BINARIES = Binaries(*(Path(f"/t/{name}") for name in ("server", "library", "api", "stub", "c")))
FIRST, SECOND, *_, LAST = limits.TRITON_RESTART_DELAYS_S


def test_a_socket_path_of_exactly_the_limit_is_taken_and_one_more_is_not() -> None:
    room = limits.SOCKET_PATH_BYTES - len("/agent.sock")
    short, long = (Path("/" + "d" * (room - 1 + more)) for more in (0, 1))
    assert layout.layout(Path("/s"), short / "agent.sock")
    with pytest.raises(Failure, match="socket_path_too_long"):
        layout.layout(Path("/s"), long / "agent.sock")


def test_shared_memory_of_two_state_folders_never_has_one_prefix() -> None:
    other = layout.layout(Path("/s2"), Path("/s2/agent.sock"))
    assert PLACES.shm_prefix != other.shm_prefix


def test_a_link_is_moved_in_one_step(tmp_path: Path) -> None:
    place = tmp_path / "link"
    for target in ("one", "two"):
        layout.link(place, tmp_path / target)
        assert place.readlink() == tmp_path / target
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_tritonserver_opens_no_port_but_the_one_of_its_metrics() -> None:
    arguments = command.arguments(BINARIES, PLACES, metrics_port=4321)
    assert "--allow-http=false" in arguments
    assert f"--grpc-address=unix:{PLACES.grpc_socket_stem}" in arguments
    assert str(PLACES.grpc_socket) == f"{PLACES.grpc_socket_stem}:{layout.GRPC_PORT}"
    assert "--metrics-address=127.0.0.1" in arguments
    assert "--metrics-port=4321" in arguments


def test_tritonserver_gives_up_on_requests_before_it_is_killed() -> None:
    arguments = command.arguments(BINARIES, PLACES, metrics_port=1)
    assert f"--exit-timeout-secs={limits.TRITON_EXIT_S:.0f}" in arguments
    assert limits.TRITON_EXIT_S < limits.TRITON_KILL_S


def test_tritonserver_loads_only_what_it_is_told_to() -> None:
    arguments = command.arguments(BINARIES, PLACES, metrics_port=1)
    assert "--model-control-mode=explicit" in arguments
    assert "--strict-readiness=false" in arguments
    assert "--exit-on-error=false" in arguments
    assert "--disable-auto-complete-config" in arguments


def test_stubs_find_this_interpreter_first() -> None:
    interpreter = command.Interpreter(Path("/v/bin"), Path("/lib"), Path("/p"))
    made = command.environment({"PATH": "/usr/bin", "HOME": "/h"}, interpreter)
    assert made["PATH"] == "/v/bin:/usr/bin"
    assert made["LD_LIBRARY_PATH"] == "/lib"
    assert made["PYTHONPATH"] == "/p"
    assert made["HOME"] == "/h"


def ended(
    lived_s: float = 1.0, *, answered: bool = True, requested: bool = False
) -> restarts.Ended:
    return restarts.Ended(lived_s=lived_s, answered=answered, requested=requested)


def test_the_first_death_is_healed_at_once() -> None:
    assert restarts.after(ended(), short_lives=0) == restarts.Restart(FIRST, 1)


def test_short_lives_wait_longer_each_time_up_to_the_last_delay() -> None:
    short_lives, delays = 0, []
    for _ in range(len(limits.TRITON_RESTART_DELAYS_S) + 3):
        decision = restarts.after(ended(answered=False), short_lives=short_lives)
        short_lives = decision.short_lives
        delays.append(decision.delay_s)
    assert delays == sorted(delays)
    assert delays[-3:] == [LAST] * 3


def test_a_long_life_starts_the_delays_again() -> None:
    settled = ended(limits.TRITON_SETTLED_S)
    assert restarts.after(settled, short_lives=5) == restarts.Restart(FIRST, 1)


def test_a_long_life_without_an_answer_does_not() -> None:
    mute = ended(limits.TRITON_SETTLED_S, answered=False)
    assert restarts.after(mute, short_lives=1).delay_s == SECOND


def test_a_restart_that_was_asked_for_is_immediate_and_counts_as_no_failure() -> None:
    asked = ended(requested=True)
    assert restarts.after(asked, short_lives=5) == restarts.Restart(0.0, 0)


def test_log_lines_are_put_together_from_chunks() -> None:
    lines = LogLines()
    assert lines.feed(b"on") == []
    assert lines.feed(b"e\ntwo\nth") == ["one", "two"]
    assert lines.feed(b"ree") == []
    assert lines.close() == ["three"]


def test_a_log_line_beyond_the_limit_is_cut_once() -> None:
    lines = LogLines()
    half = b"x" * (limits.LOG_LINE_BYTES // 2 + 1)
    assert lines.feed(half) == []
    assert lines.feed(half) == ["x" * limits.LOG_LINE_BYTES]
    assert lines.feed(half) == []
    assert lines.feed(b"end\nnext\n") == ["next"]


def test_bytes_that_are_no_text_do_not_stop_the_log() -> None:
    assert LogLines().feed(b"\xff\n") == ["\ufffd"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["/t/bin/tritonserver", "--x=shm-region-prefix-name=p_"], True),
        (["/t/triton_python_backend_stub", "model.py", "p_1"], True),
        (["/t/bin/tritonserver", "--x=shm-region-prefix-name=q_"], False),
        (["grep", "p_"], False),
        ([], False),
    ],
    ids=["its server", "its stub", "another server", "a person who looks", "a kernel thread"],
)
def test_only_triton_processes_with_the_prefix_are_leftovers(
    words: list[str], expected: bool
) -> None:
    assert leftovers.belongs("\0".join(words).encode(), "p_") is expected


def test_leftovers_are_found_by_command_line(tmp_path: Path) -> None:
    for pid, text in (("12", b"/t/tritonserver\0--p=ours_"), ("13", b"/t/tritonserver\0--p=no")):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cmdline").write_bytes(text)
    (tmp_path / "14").mkdir()
    (tmp_path / "uptime").touch()
    assert leftovers.find("ours_", tmp_path) == [12]


def test_only_this_servers_shared_memory_is_removed(tmp_path: Path) -> None:
    places = layout.layout(tmp_path / "state", tmp_path / "agent.sock")
    shm = tmp_path / "shm"
    shm.mkdir()
    ours, other = shm / f"{places.shm_prefix}a", shm / "headrace_other_a"
    ours.touch()
    other.touch()
    assert leftovers.sweep(places, shm) == 1
    assert list(shm.iterdir()) == [other]


def test_the_incarnation_survives_and_a_damaged_record_counts_from_none(tmp_path: Path) -> None:
    file = tmp_path / "record"
    assert leftovers.read_record(file).incarnation == 0
    leftovers.write_record(file, leftovers.Record(incarnation=7))
    assert leftovers.read_record(file).incarnation == 7
    file.write_bytes(b"{")
    assert leftovers.read_record(file).incarnation == 0


def test_the_version_is_read_out_of_the_servers_metadata() -> None:
    assert probe.parse_version(b"\x0a\x06triton\x12\x062.51.0\x1a\x03abc") == "2.51.0"
    assert probe.parse_version(b"\x0a\x06triton") == ""
    assert probe.parse_version(b"") == ""
