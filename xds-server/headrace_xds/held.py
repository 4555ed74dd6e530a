"""What a client holds under a name."""

from dataclasses import dataclass

from headrace_xds.translate.resources import Resource


@dataclass(frozen=True, slots=True)
class Held:
    """What the client holds; ``resource`` is None when it only said so, or holds nothing."""

    version: str
    resource: Resource | None = None
