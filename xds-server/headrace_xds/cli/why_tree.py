"""An explanation for people: a tree of decisions, each with its place in the YAML."""

from collections.abc import Iterator, Sequence

from headrace.why.explanation import Explanation, Step
from headrace.why.request import Request
from headrace_xds.cli.console import BLUE, BOLD, RED, Console

_GAP = "  "


def render(request: Request, said: Explanation, console: Console) -> str:
    """The whole tree: the request, the decisions, the outcome."""
    lines = [console.paint(f"{request.method} {request.path}", BOLD) + f"  host {request.host}"]
    lines += _branch(said.steps, "", console, last=False)
    refused = said.refusal or said.node_refusal
    outcome = console.paint(_outcome(said), RED if refused else BOLD)
    return "\n".join([*lines, f"└─ {outcome}"])


def _outcome(said: Explanation) -> str:
    if said.refusal:
        return f"refused by the gateway: {said.refusal}"
    if said.node_refusal:
        return f"refused by the node: {said.node_refusal}"
    if said.decided_by == "node":
        return f"goes to any node, by cluster {said.cluster}"
    if said.version is not None:
        return f"goes to version {said.version}, by cluster {said.cluster}"
    sides = " or ".join(str(side.version) for side in said.sides)
    return f"goes to version {sides}, at random"


def _branch(steps: Sequence[Step], before: str, console: Console, *, last: bool) -> Iterator[str]:
    """Lines of some steps; ``last`` where nothing follows them on their level."""
    width = max((len(step.topic) for step in steps), default=0)
    for index, step in enumerate(steps):
        ends = last and index == len(steps) - 1
        place = f"{_GAP}{console.paint(f'({step.place})', BLUE)}" if step.place else ""
        says = " ".join(step.says.split())
        yield f"{before}{'└─' if ends else '├─'} {step.topic.ljust(width)}{_GAP}{says}{place}"
        deeper = before + ("   " if ends else "│  ")
        yield from _branch(step.notes, deeper, console, last=True)
