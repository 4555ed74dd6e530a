"""Accelerators of a node: honest where there are none, and never a reason to hang."""

import threading
from collections.abc import Iterator

import pytest

from headrace import limits
from headrace_sidecar.gpu import inventory as found
from headrace_sidecar.gpu.inventory import Gpu, Gpus, inventory, read_gpus

H100 = Gpu(index=0, type="NVIDIA H100", memory_bytes=80 * 2**30, memory_used_bytes=0, busy=0.25)
SLICE = Gpu(index=1, type="NVIDIA H100", memory_bytes=10 * 2**30, memory_used_bytes=0, busy=None)


class Nvml:
    """NVML with as many GPUs as a test wants."""

    class NVMLError(Exception):
        pass

    def __init__(self, count: int, *, tells: bool = True) -> None:
        self.count, self.tells = count, tells

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.count:
            raise self.NVMLError

    def nvmlShutdown(self) -> None:  # noqa: N802
        pass

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, handle: int) -> bytes:  # noqa: N802
        return b"NVIDIA T4"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> object:  # noqa: N802
        return type("Memory", (), {"total": 16 * 2**30, "used": 2**30})

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> object:  # noqa: N802
        if not self.tells:
            raise self.NVMLError
        return type("Rates", (), {"gpu": 50})


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_a_machine_without_nvml_is_a_cpu() -> None:
    told = inventory((), machine_bytes=2**34)
    assert (told.type, told.memory_bytes, told.count) == ("cpu", 2**34, 0)


def test_a_machine_with_gpus_tells_their_kind_and_number() -> None:
    told = inventory((H100, H100), machine_bytes=2**34)
    assert (told.type, told.memory_bytes, told.count) == ("NVIDIA H100", 80 * 2**30, 2)


def test_nvml_that_is_absent_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(found, "pynvml", Nvml(0))
    assert read_gpus() == ()


def test_no_more_gpus_are_told_apart_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(found, "pynvml", Nvml(limits.GPUS + 1))
    gpus = read_gpus()
    assert len(gpus) == limits.GPUS
    assert (gpus[0].type, gpus[0].busy) == ("NVIDIA T4", 0.5)


def test_a_slice_of_a_gpu_does_not_tell_how_busy_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(found, "pynvml", Nvml(1, tells=False))
    assert read_gpus()[0].busy is None


async def test_the_busiest_gpu_speaks_for_the_node() -> None:
    gpus = Gpus(now=lambda: 7.0, read=lambda: (H100, SLICE))
    await gpus.look()
    assert (gpus.busy, gpus.read_s) == (0.25, 7.0)


async def test_a_driver_that_hangs_makes_the_gpus_unknown(release: threading.Event) -> None:
    reads = 0

    def hang() -> tuple[Gpu, ...]:
        nonlocal reads
        reads += 1
        release.wait()
        return (H100,)

    gpus = Gpus(now=lambda: 7.0, read=hang, timeout_s=0.05)
    for _ in range(3):
        await gpus.look()
        assert gpus.newest == ()
    assert reads == 1, "a second reading was begun beside the first"
    assert Gpus(now=lambda: 0.0)._timeout_s == limits.NVML_S
