"""``Converters``: the processes that do large work, so that small requests need not wait for it.

They start when they are first needed. Waiting for one happens in a thread, which costs the event
loop nothing: sockets let go of the interpreter while bytes move.
"""

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from headrace import limits
from headrace.assignment import Assignment
from headrace.oip import http_request, http_response
from headrace.oip.http_response import Result
from headrace.oip.tensors import InferRequest, Scalar
from headrace.refusals import Refusal, Refused
from headrace_sidecar.gpu import conversion, conversion_process
from headrace_sidecar.gpu.conversion import Outcome, Task

_PROGRAM = "headrace_sidecar.gpu.conversion_process"


class _Process:
    """One process and the socket to it."""

    def __init__(self, memory_bytes: int) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 (our own module)
                [sys.executable, "-m", _PROGRAM, str(memory_bytes)], stdin=theirs.fileno()
            )

    def ask(self, task: Task, timeout_s: float) -> Outcome:
        """The outcome of a task; OSError or EOFError where none comes."""
        self._socket.settimeout(timeout_s)
        conversion_process.send(self._socket, task)
        return conversion_process.decode_outcome(conversion_process.receive(self._socket))

    def kill(self) -> None:
        """Have it end; who waits for it gets an EOFError."""
        self._process.kill()

    def end(self) -> None:
        """Have it end, and tidy up; it holds nothing that is worth a wait."""
        self._socket.close()
        self._process.kill()
        self._process.wait()


class Converters:
    """A few processes, and a bound on who waits for them."""

    def __init__(
        self,
        *,
        processes: int = limits.CONVERTERS,
        waiting: int = limits.CONVERSIONS_WAITING,
        memory_bytes: int = limits.CONVERTER_BYTES,
        timeout_s: float = limits.CONVERSION_S,
    ) -> None:
        self._most = processes + waiting
        self._memory_bytes = memory_bytes
        self._timeout_s = timeout_s
        self._inside = 0
        self._closed = False
        self._idle: deque[_Process] = deque()
        self._busy: set[_Process] = set()
        self._threads = ThreadPoolExecutor(processes, thread_name_prefix="conversion")

    def __repr__(self) -> str:
        """One line for operators."""
        return f"Converters({self._inside} of {self._most} inside, {len(self._idle)} idle)"

    async def parse(
        self, body: bytes, header_length: str | None, assignment: Assignment
    ) -> InferRequest:
        """The request in a body that came by HTTP; Refused where Triton must not see it."""
        json_bytes = http_request.json_bytes(header_length, len(body))
        if not conversion.weighs(json_bytes, len(body), assignment):
            return http_request.parse(body, header_length, assignment)
        outcome = await self._perform(conversion.ParseHttp(body, header_length, assignment))
        assert isinstance(outcome, conversion.Parsed)
        return conversion.request(outcome)

    async def check(self, message: bytes, assignment: Assignment, *, stream: bool) -> None:
        """Refuse a large gRPC message that Triton must not see."""
        await self._perform(conversion.CheckGrpc(message, assignment, stream))

    async def render(
        self,
        request: InferRequest,
        results: Sequence[Result],
        parameters: Mapping[str, Scalar],
        assignment: Assignment,
    ) -> tuple[bytes, int | None]:
        """Body of an answer for HTTP, and how many bytes of it are JSON when tensors follow."""
        model, version = assignment.model, assignment.version
        if http_response.json_bytes(request, results) <= limits.INLINE_BYTES:
            return http_response.render(request, results, parameters, model=model, version=version)
        asked = conversion.Asked(request.outputs, request.id, request.binary)
        outcome = await self._perform(
            conversion.RenderHttp(asked, results, parameters, model, version)
        )
        assert isinstance(outcome, conversion.Rendered)
        return outcome.body, outcome.header_bytes

    async def _perform(self, task: Task) -> Outcome:
        if self._inside >= self._most:
            raise Refused(Refusal.OVERLOADED, "too many large bodies are being converted")
        self._inside += 1
        try:
            outcome = await asyncio.get_running_loop().run_in_executor(
                self._threads, self._ask, task
            )
        except TimeoutError:
            raise Refused(Refusal.TIMEOUT, "the body takes too long to convert") from None
        except (OSError, EOFError) as error:
            # Not the node's illness: a body may have brought it about.
            raise Refused(Refusal.INTERNAL, "the body could not be converted") from error
        finally:
            self._inside -= 1
        if isinstance(outcome, conversion.Declined):
            raise conversion.refusal(outcome)
        return outcome

    def _ask(self, task: Task) -> Outcome:
        """In a thread of its own: have one process do a task."""
        process = self._take()
        self._busy.add(process)
        try:
            outcome = process.ask(task, self._timeout_s)
        except BaseException:
            process.end()
            raise
        finally:
            self._busy.discard(process)
        self._idle.append(process)
        if self._closed:
            self._end_idle()
        return outcome

    def _take(self) -> _Process:
        try:
            return self._idle.pop()
        except IndexError:
            return _Process(self._memory_bytes)

    def _end_idle(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().end()

    def close(self) -> None:
        """End every process; what is still inside is lost."""
        self._closed = True
        for process in list(self._busy):
            process.kill()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._end_idle()
