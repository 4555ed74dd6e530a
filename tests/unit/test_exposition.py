"""How a node tells what it knows: Prometheus and load reports, each within its bounds."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.duration_pb2 import Duration
from prometheus_client import generate_latest
from xds.data.orca.v3.orca_load_report_pb2 import OrcaLoadReport
from xds.service.orca.v3.orca_pb2 import OrcaLoadReportRequest

from headrace import limits, metrics, names
from headrace.policy.utilization import RPS_SCALE, Service
from headrace_sidecar.exposition import loadreport
from headrace_sidecar.exposition.orca import METHOD, SERVICE, LoadReports, interval
from headrace_sidecar.exposition.prometheus import Exposition, LabelSets
from headrace_sidecar.gpu.signals import NodeSignals, VersionSignal


def signal(model: str, **changes: Any) -> VersionSignal:
    plain: dict[str, Any] = {
        "model": model,
        "version": 1,
        "ready": True,
        "queue": 2,
        "running": 5,
        "utilization": 0.5,
        "rps": 10.0,
        "concurrency": 20.0,
        "capacity": 20.0,
        "service": Service(),
    }
    return VersionSignal(**{**plain, **changes})


def signals(*versions: VersionSignal) -> NodeSignals:
    return NodeSignals(observed_s=1.0, triton_s=None, triton_age_s=0.25, versions=versions)


def text(exposition: Exposition) -> str:
    return generate_latest(exposition.registry).decode()


def test_label_sets_after_the_limit_are_counted_as_other() -> None:
    exposition = Exposition(limit=2)
    counter = exposition.counter(metrics.REQUESTS)
    for number in range(5):
        counter.add(f"m{number}", "1", "completed")
    page = text(exposition)
    assert 'model="m1"' in page
    assert 'model="m2"' not in page
    assert 'headrace_requests_total{model="other",outcome="other",version="other"} 3.0' in page


def test_gauges_after_the_limit_are_summed_as_other() -> None:
    exposition = Exposition(limit=1)
    exposition.gauge(metrics.RUNNING, lambda: [((f"m{n}", "1"), 2.0) for n in range(3)])
    assert 'headrace_running{model="other",version="other"} 4.0' in text(exposition)


def test_the_limit_of_a_program_is_the_mesh_s() -> None:
    sets = LabelSets()
    admitted = [sets.admit((str(number),)) for number in range(limits.MODEL_LABELS + 1)]
    assert admitted[-2] == (str(limits.MODEL_LABELS - 1),)
    assert admitted[-1] == (metrics.OTHER,)


def test_histograms_have_the_buckets_of_the_table() -> None:
    exposition = Exposition()
    exposition.histogram(metrics.LOAD_DURATION).observe("m", "1", seconds=0.03)
    page = text(exposition)
    assert page.count("headrace_load_duration_seconds_bucket") == (
        len(metrics.LOAD_DURATION.buckets) + 1
    )


def test_a_report_names_every_signal_of_a_version() -> None:
    report = OrcaLoadReport.FromString(
        loadreport.encode(signals(signal("m"), signal("n", rps=30.0)))
    )
    assert report.rps_fractional == pytest.approx(40.0 * RPS_SCALE)
    assert dict(report.named_metrics) == pytest.approx(
        {
            names.TRITON_AGE_METRIC: 0.25,
            names.utilization_metric("m", 1): 0.5 * 40 / 10,
            names.rps_metric("m", 1): 10.0,
            names.ready_metric("m", 1): 1.0,
            names.queue_metric("m", 1): 2.0,
            names.running_metric("m", 1): 5.0,
            names.utilization_metric("n", 1): 0.5 * 40 / 30,
            names.rps_metric("n", 1): 30.0,
            names.ready_metric("n", 1): 1.0,
            names.queue_metric("n", 1): 2.0,
            names.running_metric("n", 1): 5.0,
        }
    )


def test_equal_signals_are_encoded_once() -> None:
    encoder, now = loadreport.Encoder(), signals(signal("m"))
    assert encoder.encode(now) is encoder.encode(now)
    assert encoder.encode(signals(signal("m", ready=False))) != encoder.encode(now)


def test_intervals_have_a_floor_and_a_default() -> None:
    assert interval(0.001) == limits.LOAD_REPORT_PERIOD_MIN_S
    assert interval(2.5) == 2.5
    assert interval(0.0) == limits.SIGNAL_PERIOD_S


@asynccontextmanager
async def reporting() -> AsyncIterator[tuple[LoadReports, Any]]:
    reports = LoadReports(lambda: loadreport.encode(signals(signal("m"))))
    port = reports.server.add_insecure_port("127.0.0.1:0")
    await reports.server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stream = channel.unary_stream(
            f"/{SERVICE}/{METHOD}",
            request_serializer=OrcaLoadReportRequest.SerializeToString,
            response_deserializer=OrcaLoadReport.FromString,
        )
        yield reports, stream
    await reports.server.stop(None)


async def test_a_subscriber_gets_reports_until_it_leaves() -> None:
    async with reporting() as (reports, stream):
        call = stream(OrcaLoadReportRequest(report_interval=Duration(nanos=1)))
        for _ in range(3):
            assert (await call.read()).named_metrics[names.ready_metric("m", 1)] == 1.0
        assert reports.streams == 1
        call.cancel()


async def test_more_streams_than_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with reporting() as (_, stream):
        monkeypatch.setattr(limits, "LOAD_REPORT_STREAMS", 2)
        calls = [stream(OrcaLoadReportRequest()) for _ in range(2)]
        for call in calls:
            await call.read()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stream(OrcaLoadReportRequest()).read()
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        for call in calls:
            call.cancel()
