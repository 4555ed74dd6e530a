"""What accelerators the node has, by NVML, asked in a thread because drivers can hang.

A node without NVML says so: type ``cpu`` and the memory of the machine. A reading that does not
come back in time counts as unknown, and no further one is begun until it does.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any, Final

import msgspec
import pynvml

from headrace import limits

CPU: Final = "cpu"


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU; ``busy`` None where the device does not tell, as slices of a GPU do not."""

    index: int
    type: str
    memory_bytes: int
    memory_used_bytes: int
    busy: float | None


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """Accelerators of a node."""

    type: str
    memory_bytes: int
    count: int
    driver: str = ""


def read_gpus() -> tuple[Gpu, ...]:
    """Every GPU that NVML shows; none where there is no NVML. Blocks."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        count = min(pynvml.nvmlDeviceGetCount(), limits.GPUS)
        return tuple(_read_gpu(index) for index in range(count))
    except pynvml.NVMLError:
        return ()
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _read_gpu(index: int) -> Gpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    name = pynvml.nvmlDeviceGetName(handle)
    return Gpu(
        index=index,
        type=name.decode() if isinstance(name, bytes) else name,
        memory_bytes=int(memory.total),
        memory_used_bytes=int(memory.used),
        busy=_busy(handle),
    )


def _busy(handle: Any) -> float | None:
    try:
        return float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu) / 100.0
    except pynvml.NVMLError:
        return None


def inventory(gpus: tuple[Gpu, ...], *, machine_bytes: int) -> Inventory:
    """What to tell the control server: the kind and the memory of one accelerator, and how many."""
    if not gpus:
        return Inventory(type=CPU, memory_bytes=machine_bytes, count=0)
    return Inventory(type=gpus[0].type, memory_bytes=gpus[0].memory_bytes, count=len(gpus))


def machine_bytes() -> int:
    """Memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class Gpus:
    """The newest reading of the GPUs and when it was made."""

    def __init__(
        self,
        *,
        now: Callable[[], float],
        read: Callable[[], tuple[Gpu, ...]] = read_gpus,
        timeout_s: float = limits.NVML_S,
    ) -> None:
        self.newest: tuple[Gpu, ...] = ()
        self.read_s: float | None = None
        self._read = read
        self._now = now
        self._timeout_s = timeout_s
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        """One line for operators."""
        return f"Gpus({len(self.newest)} at {self.read_s})"

    @property
    def busy(self) -> float | None:
        """Busiest GPU of the node, None where none tells."""
        return max((gpu.busy for gpu in self.newest if gpu.busy is not None), default=None)

    async def look(self) -> None:
        """Read once; in time, or not at all."""
        if self._thread is not None and self._thread.is_alive():
            self.newest = ()
            return
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[tuple[Gpu, ...]] = loop.create_future()

        def deliver(gpus: tuple[Gpu, ...]) -> None:
            if not answer.done():
                answer.set_result(gpus)

        def read() -> None:
            gpus = self._read()
            # The loop may be closed by the time that a slow driver answers.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(deliver, gpus)

        # A daemon: one that hangs in the driver must not hold up the exit of the program.
        self._thread = threading.Thread(target=read, name="nvml", daemon=True)
        self._thread.start()
        try:
            async with asyncio.timeout(self._timeout_s):
                self.newest = await answer
        except TimeoutError:
            self.newest = ()
            return
        self.read_s = self._now()

    async def run(self, *, period_s: float = 1.0) -> None:
        """Read again and again until cancelled; once where there is no GPU."""
        while True:
            await self.look()
            if not self.newest and self.read_s is not None:
                return
            await asyncio.sleep(period_s)
