"""``headrace why``: the request it is given, the tree it shows, its exit statuses."""

import argparse
import json
from pathlib import Path

import pytest

from headrace.why.request import Request, frame
from headrace_xds.cli import main as cli
from headrace_xds.cli import why_request
from headrace_xds.cli.console import CommandError, Exit

CANARY = Path(__file__).parents[2] / "mesh-config" / "examples" / "canary.yaml"
OFFLINE = ("why", "-f", str(CANARY), "-H", "x-api-key: demo")
DOCUMENTED = CANARY.parents[2] / "docs" / "command-line.md"


def read(*words: str) -> Request:
    """Request of some flags."""
    parser = argparse.ArgumentParser()
    why_request.add_flags(parser)
    return why_request.read(parser.parse_args(words)).request


def test_a_request_is_given_as_curl_takes_it(tmp_path: Path) -> None:
    assert read("http://a:1/v2?x=1") == Request(method="GET", path="/v2?x=1", host="a:1")
    posted = read("-d", "{}", "-H", "X-A:  b ", "/v2")
    assert (posted.method, posted.body, posted.headers) == ("POST", b"{}", (("x-a", "b"),))
    assert read("-X", "put", "/v2").method == "PUT"
    assert read("-H", "Host: h", "http://a:1/").host == "h"
    assert read("--body-bytes", "7", "/v2").size == 7
    (tmp_path / "body").write_bytes(b"\xff\x00")
    assert read("-d", f"@{tmp_path / 'body'}", "/v2").body == b"\xff\x00"


def test_a_call_names_model_and_version_where_its_method_has_them() -> None:
    unary = read("--grpc", "ModelInfer", "--model", "vision", "--version", "2")
    assert unary.body == frame(b"\x0a\x06vision\x12\x012")
    assert (unary.path, unary.kind) == ("/inference.GRPCInferenceService/ModelInfer", "grpc")
    stream = read("--grpc", "ModelStreamInfer", "--model", "vision")
    assert (stream.kind, stream.get("headrace-model")) == ("stream", "vision")
    long = read("--grpc", "ModelInfer", "--model", "v" * 200)
    assert long.body == frame(b"\x0a\xc8\x01" + b"v" * 200)
    assert read("--grpc", "/grpc.health.v1.Health/Check").path == "/grpc.health.v1.Health/Check"


@pytest.mark.parametrize(
    "words", [(), ("-H", "no colon", "/v2"), ("-d", "@/nowhere", "/v2"), ("http://[/v2",)]
)
def test_flags_that_make_no_request_are_wrong_usage(words: tuple[str, ...]) -> None:
    with pytest.raises(CommandError) as error:
        read(*words)
    assert error.value.status == Exit.USAGE


def test_the_tree_ends_with_where_the_request_goes(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*OFFLINE, "-H", "x-cohort: beta", "/v2/models/vision"]) == Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "GET /v2/models/vision  host 127.0.0.1:10000"
    assert lines[-1] == "└─ goes to version 2, by cluster m-vision-2-http"
    assert all(line.startswith(("├─ ", "│  ")) for line in lines[1:-1])
    assert any(line.endswith("canary.yaml:72)") and "vision-beta" in line for line in lines)


@pytest.mark.parametrize(
    ("words", "status", "last"),
    [
        (("/v2/models/none",), Exit.NEGATIVE, "└─ refused by the gateway: model_not_found"),
        (("/v2/models/vision/infer",), Exit.NEGATIVE,
         "└─ refused by the node: method_not_allowed"),
        (("/v2",), Exit.OK, "└─ goes to any node, by cluster nodes-http"),
        (("/v2/models/vision",), Exit.OK, "└─ goes to version 1 or 2, at random"),
    ],
)  # fmt: skip
def test_a_refused_request_is_status_1(
    words: tuple[str, ...], status: Exit, last: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*OFFLINE, *words]) == status
    assert capsys.readouterr().out.splitlines()[-1] == last


def test_programs_get_every_decision(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*OFFLINE, "-H", "x-user: u1", "-o", "json", "/v2/models/vision"]) == Exit.OK
    said = json.loads(capsys.readouterr().out)
    assert (said["decidedBy"], said["version"], said["tenant"]) == ("sticky", 1, "demo")
    assert {step["topic"] for step in said["steps"]} >= {"caller", "route", "version", "nodes"}
    assert cli.main([*OFFLINE, "-o", "yaml", "/v2"]) == Exit.OK
    assert "decidedBy: node" in capsys.readouterr().out


def test_a_gateway_is_named_by_flag_or_by_the_url(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = CANARY.read_text()
    more = "    - name: gw\n      port: 10000\n    - name: other\n      port: 10001\n"
    file = tmp_path / "mesh.yaml"
    file.write_text(text.replace("    - name: gw\n      port: 10000\n", more))
    for words, gateway in (
        (("/v2",), "gw"),
        (("--gateway", "other", "/v2"), "other"),
        (("http://127.0.0.1:10001/v2",), "other"),
    ):
        cli.main(["why", "-f", str(file), "-H", "x-api-key: demo", "-o", "json", *words])
        assert json.loads(capsys.readouterr().out)["gateway"] == gateway
    assert cli.main(["why", "-f", str(file), "--gateway", "none", "/v2"]) == Exit.NEGATIVE
    assert "gateways: gw, other" in capsys.readouterr().err


def test_files_with_errors_are_shown_and_nothing_is_followed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text(CANARY.read_text().replace("alias: canary", "alias: canari"))
    assert cli.main(["why", "-f", str(file), "/v2"]) == Exit.NEGATIVE
    said = capsys.readouterr()
    assert said.out == ""
    assert "HR0105" in said.err


def test_the_documented_tree_is_what_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(CANARY.parents[2])
    shown = "mesh-config/examples/canary.yaml"
    words = ["-H", "x-api-key: demo", "-H", "x-user: u1", "/v2/models/vision"]
    assert cli.main(["why", "-f", shown, *words]) == Exit.OK
    assert capsys.readouterr().out in DOCUMENTED.read_text()


def test_a_server_that_does_not_answer_is_status_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["why", "--server", "http://127.0.0.1:9", "/v2"]) == Exit.UNREACHABLE
    assert "does not answer" in capsys.readouterr().err
