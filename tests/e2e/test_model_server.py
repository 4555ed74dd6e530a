"""The model server with the real tritonserver: placing, loading, queueing, dying, healing."""

import concurrent.futures
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from headrace_models import leftovers
from headrace_models.layout import layout
from tests.fakes import model_server
from tests.fakes.model_server import ModelServer, echo, infer_request, outputs

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with model_server.running_model_server() as running:
        yield running


def infer(server: ModelServer, request: Any, timeout_s: float = 20.0) -> Any:
    with server.client() as stub:
        return stub.ModelInfer(request, timeout=timeout_s)


def test_the_ports_file_names_sockets_that_answer(server: ModelServer) -> None:
    ports = json.loads((server.folder / "ports.json").read_text())
    assert ports["triton_socket"] == server.triton()["grpc_socket"]
    with grpc.insecure_channel(f"unix:{ports['triton_socket']}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        assert stub.ServerLive(pb.ServerLiveRequest(), timeout=5).live
    assert "nv_" in server.metrics()


def test_the_version_is_asked_of_the_running_server(server: ModelServer) -> None:
    assert server.triton()["version"].split(".")[0] == "2"


@pytest.mark.parametrize("datatype", ["UINT8", "BYTES"])
def test_an_identity_model_answers_with_what_it_was_sent(
    server: ModelServer, datatype: str
) -> None:
    assignment = echo(datatype)
    server.load(assignment)
    sent: Any = b"\x00\x01\xff" if datatype == "UINT8" else [b"", "hälló".encode(), b"\xff"]
    got = outputs(infer(server, infer_request(assignment, {"data": sent})))["data"]
    assert list(got) == list(sent)


def test_placing_the_same_again_changes_nothing(server: ModelServer) -> None:
    server.load(echo())
    place = server.folder / "repository" / "echo.1"
    before = place.resolve()
    reply = server.place(msgspec.structs.replace(echo(), attempt=3))
    assert reply.status == 200
    assert place.resolve() == before


def test_a_removed_version_cannot_be_loaded(server: ModelServer) -> None:
    server.load(echo())
    assert server.call("DELETE", "/v1/versions/echo/1").status == 204
    assert server.call("DELETE", "/v1/versions/echo/1").status == 204
    with server.client() as stub:
        stub.RepositoryModelUnload(pb.RepositoryModelUnloadRequest(model_name="echo.1"))
        with pytest.raises(grpc.RpcError, match="failed to poll"):
            stub.RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name="echo.1"))


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("echo/1", b"{", "invalid_assignment"),
        ("echo/2", msgspec.json.encode(echo()), "invalid_assignment"),
        ("..%2fx/1", msgspec.json.encode(echo()), "invalid_assignment"),
        (
            "echo/1",
            msgspec.json.encode(msgspec.structs.replace(echo(), executor="magic")),
            "unknown_executor",
        ),
    ],
    ids=["no JSON", "another version", "a path as a name", "an executor that does not exist"],
)
def test_what_can_never_work_is_refused_for_good(
    server: ModelServer, path: str, body: bytes, code: str
) -> None:
    reply = server.call("PUT", f"/v1/versions/{path}", body)
    assert (reply.status, reply.body["code"]) == (422, code)
    assert reply.body["error"]
    assert reply.body["remedy"]


def test_requests_of_different_lengths_share_executions(server: ModelServer) -> None:
    assignment = echo("BYTES", {"delay_ms": "100"})
    server.load(assignment)
    with concurrent.futures.ThreadPoolExecutor(9) as pool:
        texts = [[b"x" * length] * length for length in range(1, 10)]
        requests = [infer_request(assignment, {"data": text}) for text in texts]
        answers = list(pool.map(lambda request: infer(server, request), requests))
    assert [outputs(answer)["data"] for answer in answers] == texts
    with server.client() as stub:
        asked = pb.ModelStatisticsRequest(name="echo.1")
        statistics = stub.ModelStatistics(asked, timeout=5).model_stats[0]
    assert statistics.execution_count < statistics.inference_count


def test_a_full_queue_refuses_and_sheddable_requests_have_half_of_it(server: ModelServer) -> None:
    assignment = echo(parameters={"delay_ms": "300"}, max_batch_size=1, max_queue_size=4)
    server.load(assignment)

    def outcome(priority: int) -> str:
        request = infer_request(assignment, {"data": b"x"}, priority=priority)
        with server.client() as stub:
            error = stub.ModelInfer.future(request, timeout=20).exception()
        return f"{error.code().name}: {error.details()}" if error else ""

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        sheddable = list(pool.map(outcome, [3] * 12))
        critical = list(pool.map(outcome, [1] * 12))
    for refused in (sheddable, critical):
        assert all(text.startswith("UNAVAILABLE") for text in refused if text)
        assert all(text.endswith("Exceeds maximum queue size") for text in refused if text)
    assert 0 < sheddable.count("") < critical.count("") < 12


def test_a_request_that_waited_too_long_is_refused(server: ModelServer) -> None:
    assignment = echo(parameters={"delay_ms": "500"}, max_batch_size=1, queue_timeout_s=0.2)
    server.load(assignment)
    request = infer_request(assignment, {"data": b"x"})
    with server.client() as stub:
        calls = [stub.ModelInfer.future(request, timeout=20) for _ in range(3)]
        refusals = [call.exception() for call in calls]
    assert any(refusal and "timeout expired" in refusal.details() for refusal in refusals)


def test_a_crash_hook_works_only_where_it_was_switched_on(server: ModelServer) -> None:
    safe = echo("BYTES")
    server.load(safe)
    assert outputs(infer(server, infer_request(safe, {"data": [b"crash"]})))["data"] == [b"crash"]
    frail = echo("BYTES", {"test_hooks": "on"})
    server.load(frail)
    with pytest.raises(grpc.RpcError, match="not healthy"):
        infer(server, infer_request(frail, {"data": [b"crash"]}))
    # A dead stub leaks inside this tritonserver, so the next tests get a fresh one.
    incarnation = server.triton()["incarnation"]
    assert server.call("POST", "/v1/triton/restart").status == 202
    server.wait_triton(incarnation=incarnation + 1)


def test_a_hung_model_is_gone_after_a_restart(server: ModelServer) -> None:
    frail = echo("BYTES", {"test_hooks": "on"})
    server.load(frail)
    with pytest.raises(grpc.RpcError) as refused:
        infer(server, infer_request(frail, {"data": [b"hang"]}), timeout_s=0.5)
    assert refused.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    incarnation = server.triton()["incarnation"]
    assert server.call("POST", "/v1/triton/restart").status == 202
    server.wait_triton(incarnation=incarnation + 1)
    server.load(frail)
    assert outputs(infer(server, infer_request(frail, {"data": [b"x"]})))["data"] == [b"x"]


def test_a_killed_tritonserver_is_back_with_a_higher_incarnation(server: ModelServer) -> None:
    server.load(echo())
    before = server.triton()
    os.kill(before["pid"], signal.SIGKILL)
    after = server.wait_triton(incarnation=before["incarnation"] + 1)
    assert after["pid"] != before["pid"]
    with server.client() as stub:
        index = stub.RepositoryIndex(pb.RepositoryIndexRequest(ready=True), timeout=5)
    assert not index.models
    server.load(echo())
    assert infer(server, infer_request(echo(), {"data": b"x"}))


def test_the_successor_of_a_killed_model_server_starts_clean_and_knows_its_versions() -> None:
    with model_server.running_model_server() as server:
        server.load(echo())
        before = server.triton()
        assert server.stop(signal.SIGKILL) < 0
        successor = model_server.launch(server.folder)
        try:
            model_server.wait_up(successor)
            after = successor.triton()
            assert after["incarnation"] == before["incarnation"] + 1
            assert leftovers.find(prefix_of(server)) == [after["pid"]]
            versions = successor.call("GET", "/v1/status").body["versions"]
            assert [version["model"] for version in versions] == ["echo"]
        finally:
            successor.stop()


def test_sigterm_ends_everything_and_leaves_nothing_behind() -> None:
    with model_server.running_model_server() as server:
        server.load(echo())
        prefix = prefix_of(server)
        assert leftovers.find(prefix)
        assert server.stop() == 0
        assert leftovers.find(prefix) == []
        assert list(leftovers.SHM.glob(f"{prefix}*")) == []
        assert not (server.folder / "ports.json").exists()
        assert not (server.folder / "agent.sock").exists()


def test_two_model_servers_never_share_a_folder(server: ModelServer) -> None:
    second = subprocess.run(
        [*model_server.COMMAND, "--state-dir", str(server.folder)],
        env=model_server.environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert second.returncode == 1
    assert "state_dir_in_use" in second.stderr


def test_a_state_folder_too_deep_for_sockets_is_refused(tmp_path: Path) -> None:
    refused = subprocess.run(
        [*model_server.COMMAND, "--state-dir", str(tmp_path / ("d" * 110))],
        env=model_server.environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert refused.returncode == 1
    assert "socket_path_too_long" in refused.stderr


def prefix_of(server: ModelServer) -> str:
    return layout(server.folder, server.folder / "agent.sock").shm_prefix
