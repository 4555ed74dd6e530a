"""The golden check: one known question, and whether the answer is the known one.

A model that loads and answers wrongly, or not at all, must not take traffic. The question goes to
Triton past the front door: it is asked before the version is ready, and is nobody's traffic.
"""

from collections.abc import Mapping, Sequence, Set
from typing import Any, Final

from google.protobuf.message import DecodeError

from headrace.assignment import Assignment
from headrace.oip import http_request, json_data
from headrace.oip.datatypes import DATATYPES
from headrace.oip.http_response import Result
from headrace.refusals import Refusal, Refused
from headrace_sidecar.gpu import messages
from headrace_sidecar.gpu.agent import Check, Golden
from headrace_sidecar.gpu.serving import Served
from headrace_sidecar.gpu.setback import Setback
from headrace_sidecar.gpu.triton import Triton

PRIORITY: Final = 1
"""The highest: behind a full queue the question would measure the load instead of the health."""


class Busy(Exception):
    """The queue was too full to ask: the model is loaded with work, not sick."""


async def ask(triton: Triton, assignment: Assignment, golden: Golden, *, timeout_s: float) -> None:
    """Return when the model gives the golden answer; else Setback, or Busy."""
    try:
        request = http_request.parse(bytes(golden.request), None, assignment)
    except Refused as refused:
        raise Setback(
            f"the golden request is not valid: {refused.message}", permanent=True
        ) from None
    served = Served(assignment)
    message = messages.encode(request, messages.address(served.triton_model, priority=PRIORITY))
    try:
        answer = await triton.infer(message, served, timeout_s=timeout_s)
    except Refused as refused:
        if refused.refusal is Refusal.OVERLOADED:
            raise Busy from refused
        raise Setback(f"no golden answer: {refused.message}") from refused
    try:
        named = {check.output for check in golden.checks}
        outputs = values(messages.results(messages.parse_response(answer)), named)
    except (Refused, DecodeError, KeyError, ValueError) as error:
        raise Setback(f"the golden answer cannot be read: {error}") from error
    if wrong := differences(golden.checks, outputs):
        raise Setback(f"not the golden answer: {'; '.join(wrong)}")


def values(results: Sequence[Result], named: Set[str]) -> dict[str, list[Any]]:
    """Elements of the named outputs, as plain values."""
    return {
        result.name: json_data.from_raw(result.raw, DATATYPES[result.datatype], result.name)
        for result in results
        if result.name in named
    }


def differences(checks: Sequence[Check], outputs: Mapping[str, Sequence[Any]]) -> list[str]:
    """Every check that the outputs fail, in words."""
    return [text for check in checks if (text := _difference(check, outputs))]


def _difference(check: Check, outputs: Mapping[str, Sequence[Any]]) -> str:
    place = f"{check.output}[{check.index}]"
    elements = outputs.get(check.output)
    if elements is None or not 0 <= check.index < len(elements):
        return f"{place} is missing"
    found = elements[check.index]
    if check.near is not None:
        near = _is_number(found) and abs(found - check.near) <= check.tolerance
        return "" if near else f"{place} is {found!r}, not near {check.near!r}"
    return "" if found == check.equals else f"{place} is {found!r}, not {check.equals!r}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
