"""Triton's metrics page, read into the few numbers that load signals need. Pure."""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from headrace.policy.utilization import Totals

_MICROSECONDS: Final = 1e-6


class Counters(msgspec.Struct):
    """Counters of one Triton model, summed over its instances."""

    requests: float = 0.0
    inferences: float = 0.0
    executions: float = 0.0
    compute_s: float = 0.0
    queue_s: float = 0.0
    pending: int = 0

    @property
    def totals(self) -> Totals:
        """The rising ones."""
        return Totals(
            requests=self.requests,
            inferences=self.inferences,
            executions=self.executions,
            compute_s=self.compute_s,
            queue_s=self.queue_s,
        )


_FIELDS: Final[Mapping[str, tuple[str, float]]] = {
    "nv_inference_request_success": ("requests", 1.0),
    "nv_inference_count": ("inferences", 1.0),
    "nv_inference_exec_count": ("executions", 1.0),
    "nv_inference_queue_duration_us": ("queue_s", _MICROSECONDS),
    "nv_inference_compute_input_duration_us": ("compute_s", _MICROSECONDS),
    "nv_inference_compute_infer_duration_us": ("compute_s", _MICROSECONDS),
    "nv_inference_compute_output_duration_us": ("compute_s", _MICROSECONDS),
    "nv_inference_pending_request_count": ("pending", 1),
}


def parse(page: str) -> dict[str, Counters]:
    """Counters by Triton model; lines that say nothing about them are passed over."""
    models: dict[str, Counters] = {}
    for name, labels, value in _samples(page):
        field, scale = _FIELDS[name]
        model = _label(labels, "model")
        if model:
            counters = models.setdefault(model, Counters())
            setattr(counters, field, getattr(counters, field) + value * scale)
    for counters in models.values():
        counters.pending = round(counters.pending)
    return models


def _samples(page: str) -> Iterator[tuple[str, str, float]]:
    for line in page.splitlines():
        name, brace, rest = line.partition("{")
        if not brace or name not in _FIELDS:
            continue
        labels, _, value = rest.rpartition("} ")
        try:
            yield name, labels, float(value)
        except ValueError:
            continue


def _label(labels: str, name: str) -> str:
    """Value of a label; Triton writes them in any order, and model names hold no quotes."""
    _, found, rest = f",{labels}".partition(f',{name}="')
    return rest.partition('"')[0] if found else ""
