"""What an error of Triton means to the caller, to the retry and to the node's health."""

from typing import Final

from headrace.refusals import Refusal, Refused

_FULL: Final = ("Exceeds maximum queue size", "Request timeout expired")
_STUB_DEAD: Final = ("is not healthy", "Stub process")
_NEVER_SENT: Final = (
    "failed to connect to all addresses",
    "Connection refused",
    "connect: No such file or directory",
)
_LEAVING: Final = ("Server exiting", "has no available versions", "is not found")

_PLAIN: Final = {
    "INVALID_ARGUMENT": Refusal.INVALID_VALUE,
    "OUT_OF_RANGE": Refusal.INVALID_VALUE,
    "ALREADY_EXISTS": Refusal.INVALID_VALUE,
    "UNIMPLEMENTED": Refusal.NOT_IMPLEMENTED,
    "CANCELLED": Refusal.CLIENT_GONE,
    "DEADLINE_EXCEEDED": Refusal.TIMEOUT,
}


def is_stub_death(details: str) -> bool:
    """Whether Triton says that the process of a model's instance died."""
    return all(part in details for part in _STUB_DEAD)


def refuse(code: str, details: str, *, idempotent: bool) -> Refused:
    """Refusal for a failed inference; ``code`` is the name of a gRPC status.

    A request that Triton never had may run elsewhere. One that Triton lost may have run: it runs
    elsewhere only where running twice is harmless.
    """
    if is_stub_death(details):
        return Refused(
            Refusal.NOT_READY,
            "the model's process died; it is being repaired",
            elsewhere=idempotent,
            sick=True,
        )
    if code == "UNAVAILABLE":
        return _unavailable(details, idempotent=idempotent)
    if code == "NOT_FOUND":
        # The node's table has the model, so Triton lost or is unloading it: not the caller's fault.
        return Refused(Refusal.NOT_READY, f"the model is not loaded: {details}", elsewhere=True)
    refusal = _PLAIN.get(code, Refusal.INTERNAL)
    # A response larger than the limit is no illness: a caller could eject every node with it.
    sick = refusal is Refusal.INTERNAL and code != "RESOURCE_EXHAUSTED"
    return Refused(refusal, details or refusal.remedy, sick=sick)


def refuse_message(details: str, *, idempotent: bool) -> Refused:
    """Refusal for an error inside a stream, where Triton gives a text and no status."""
    if any(part in details for part in _FULL):
        return refuse("UNAVAILABLE", details, idempotent=idempotent)
    return refuse("UNKNOWN", details, idempotent=idempotent)


def _unavailable(details: str, *, idempotent: bool) -> Refused:
    if any(part in details for part in _FULL):
        return Refused(Refusal.OVERLOADED, f"the model's queue is full: {details}")
    if any(part in details for part in _LEAVING):
        return Refused(Refusal.NOT_READY, details, elsewhere=True)
    if any(part in details for part in _NEVER_SENT):
        return Refused(
            Refusal.NOT_READY, "the model server is being restarted", elsewhere=True, sick=True
        )
    return Refused(
        Refusal.UPSTREAM_RESET, "the model server went away", elsewhere=idempotent, sick=True
    )
