"""The load report of a node: its signals in the form that Envoy and the control server read."""

from xds.data.orca.v3 import orca_load_report_pb2

from headrace import names
from headrace.policy.utilization import RPS_SCALE, Used, report
from headrace_sidecar.gpu.signals import NodeSignals


class Encoder:
    """Encodes each set of signals once, however many streams ask for it."""

    def __init__(self) -> None:
        self._signals: NodeSignals | None = None
        self._report = b""

    def encode(self, signals: NodeSignals) -> bytes:
        """The report of these signals."""
        if signals is not self._signals:
            self._signals, self._report = signals, encode(signals)
        return self._report


def encode(signals: NodeSignals) -> bytes:
    """One ``OrcaLoadReport``. ``rps_fractional`` scales the utilisations; see ``utilization``."""
    used = {
        names.assignment(one.model, one.version): Used(
            utilization=one.utilization, rps=one.rps, capacity=one.capacity
        )
        for one in signals.versions
    }
    node_rps, lines = report(used)
    metrics = {names.TRITON_AGE_METRIC: signals.triton_age_s}
    for one in signals.versions:
        key = (one.model, one.version)
        line = lines[names.assignment(*key)]
        metrics[names.utilization_metric(*key)] = line.utilization
        metrics[names.rps_metric(*key)] = line.rps
        metrics[names.ready_metric(*key)] = float(one.ready)
        metrics[names.queue_metric(*key)] = float(one.queue)
        metrics[names.running_metric(*key)] = float(one.running)
    message = orca_load_report_pb2.OrcaLoadReport(
        rps_fractional=node_rps * RPS_SCALE, named_metrics=metrics
    )
    return bytes(message.SerializeToString())
