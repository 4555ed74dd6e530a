"""Assignments for tests of the GPU sidecar."""

from headrace.assignment import Assignment, Batching, Tensor


def identity(model: str, *, version: int = 1, attempt: int = 0, **parameters: str) -> Assignment:
    """A version that answers with what it was sent, and obeys ``crash`` and ``hang``."""
    data = (Tensor(name="data", datatype="BYTES", shape=(1,)),)
    return Assignment(
        model=model,
        version=version,
        executor="identity",
        artifact="",
        inputs=data,
        outputs=data,
        batching=Batching(
            max_batch_size=0, max_queue_delay_s=0.0, max_queue_size=64, queue_timeout_s=5.0
        ),
        idempotent=True,
        parameters={"test_hooks": "on", **parameters},
        attempt=attempt,
    )
