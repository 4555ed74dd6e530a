"""Keeps the programs of a local mesh running: starts what ended, adopts what runs, stops in order.

Commands come as files and signals, not over a socket, so that a mesh whose supervisor died can be
looked at, stopped and taken over like any other: a file in ``held/`` keeps a program from being
started again, SIGTERM ends everything, and ``processes.json`` says what runs.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from headrace import limits
from headrace_xds.local import identity, logs, record, restarts
from headrace_xds.local.identity import Identity
from headrace_xds.local.plan import HELD_DIR, Plan, Program, file_name, log_file

_POLL_S = 0.1
_LOG_CHECK_S = 1.0


class Supervisor:
    """The programs of one plan and their lives."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._state_dir = Path(plan.state_dir)
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        before = record.read(self._state_dir)
        running = before.running()
        self._lives = {
            program.name: record.Life(
                process=running.get(program.name),
                starts=before.programs.get(program.name, record.Life()).starts,
            )
            for program in plan.programs
        }

    def __repr__(self) -> str:
        running = sum(life.process is not None for life in self._lives.values())
        return f"Supervisor({running}/{len(self._lives)} running, {self._state_dir})"

    async def run(self, stop: asyncio.Event) -> None:
        """Keep every program running until told to stop, then stop them, last stage first."""
        self._write()
        async with asyncio.TaskGroup() as tasks:
            keepers = [tasks.create_task(self._keep(p)) for p in self._in_order()]
            keepers.append(tasks.create_task(self._bound_logs()))
            await stop.wait()
            for keeper in keepers:
                keeper.cancel()
        await self._stop_all()
        shutil.rmtree(self._plan.runtime_dir, ignore_errors=True)

    def _in_order(self) -> list[Program]:
        return sorted(self._plan.programs, key=lambda program: program.stage)

    async def _keep(self, program: Program) -> None:
        while True:
            await self._released(program)
            life = self._lives[program.name]
            try:
                # One that runs already was started by a supervisor that is gone: it is taken over.
                process = life.process or self._start(program)
            except OSError as error:
                short = life.short_lives + 1
                self._set(program, record.Life(exit=str(error), short_lives=short))
            else:
                await _ended(process.pid)
                self._set(program, self._bury(program, process))
            await asyncio.sleep(restarts.delay_s(self._lives[program.name].short_lives))

    async def _released(self, program: Program) -> None:
        held = self._state_dir / HELD_DIR / file_name(program.name)
        while held.exists():  # noqa: ASYNC110 - other processes make and remove the file
            await asyncio.sleep(_POLL_S)

    def _start(self, program: Program) -> Identity:
        log = logs.open_log(log_file(self._state_dir, program.name))
        try:
            child = subprocess.Popen(  # noqa: S603 - programs of the plan
                program.argv,
                env={**os.environ, **program.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        finally:
            os.close(log)
        self._children[child.pid] = child
        process = identity.of_child(child.pid)
        life = self._lives[program.name]
        self._set(program, msgspec.structs.replace(life, process=process, starts=life.starts + 1))
        return process

    def _bury(self, program: Program, process: Identity) -> record.Life:
        child = self._children.pop(process.pid, None)
        how = _how_ended(child.wait()) if child is not None else "ended"
        # What it started ends with it: a stub or helper that outlives its program serves nobody.
        identity.kill_group(process)
        life = self._lives[program.name]
        short = restarts.short_lives_after(identity.age_s(process), before=life.short_lives)
        return msgspec.structs.replace(life, process=None, exit=how, short_lives=short)

    async def _stop_all(self) -> None:
        stages = sorted({program.stage for program in self._plan.programs}, reverse=True)
        for stage in stages:
            programs = [p for p in self._plan.programs if p.stage == stage]
            async with asyncio.TaskGroup() as tasks:
                for program in programs:
                    tasks.create_task(self._stop(program))

    async def _stop(self, program: Program) -> None:
        process = self._lives[program.name].process
        if process is None:
            return
        identity.send(process, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limits.LOCAL_STOP_S):
                await _ended(process.pid)
        identity.send(process, signal.SIGKILL)
        await _ended(process.pid)
        self._set(program, self._bury(program, process))

    async def _bound_logs(self) -> None:
        while True:
            for program in self._plan.programs:
                logs.bound(log_file(self._state_dir, program.name))
            await asyncio.sleep(_LOG_CHECK_S)

    def _set(self, program: Program, life: record.Life) -> None:
        self._lives[program.name] = life
        self._write()

    def _write(self) -> None:
        programs: Mapping[str, record.Life] = dict(self._lives)
        own = identity.identify(os.getpid())
        record.write(
            self._state_dir,
            record.Record(supervisor=own, runtime_dir=self._plan.runtime_dir, programs=programs),
        )


async def _ended(pid: int) -> None:
    """Wait until a process, a child or an adopted one, has ended."""
    with _pidfd(pid) as descriptor:
        if descriptor is None:
            return
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(descriptor, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(descriptor)


@contextlib.contextmanager
def _pidfd(pid: int) -> Iterator[int | None]:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _how_ended(code: int) -> str:
    return f"exit {code}" if code >= 0 else f"signal {-code}"
