"""A whole mesh on this machine, started, looked at, hurt and stopped from Python.

``headrace up`` and the tests of the whole mesh use this one class, made by ``start.start``. A test
reads like this::

    with start(Path("mesh-config/examples/local"), tmp_path, ports="auto") as mesh:
        mesh.gateway("eu").url            # http://127.0.0.1:23456
        mesh.node("eu-1").place.address   # 127.0.1.1; ports are in mesh.plan.ports
        mesh.config_dir                   # edit the YAML in here: it is reloaded
        mesh.kill("gpu/eu-1")             # kill -9; it is started again by itself
        mesh.halt("xds")                  # kill -9, and it stays dead ...
        mesh.resume("xds")                # ... until it is resumed
        mesh.stop_program("gpu/eu-2")     # SIGTERM: drains, exits, stays down
        mesh.pids("triton/eu-1")          # the program, its tritonserver and stubs

Programs are called ``xds``, ``gateway/<name>``, ``triton/<node>`` and ``gpu/<node>``. Calls block;
from async code use ``asyncio.to_thread`` for those that wait. With ``ports="auto"`` the folder is
copied and given free ports, so many meshes run side by side. A mesh started with ``tied=True`` (the
context manager's way) also ends when the process that started it dies.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from headrace import limits
from headrace_xds.local import identity, logs, plan, readiness, record
from headrace_xds.local.plan import GatewayPlace, Node, Plan

Progress = Callable[[str], None]
_POLL_S = 0.1
_SUPERVISOR_START_S = 30.0
_STOP_ALL_S = 3 * limits.LOCAL_STOP_S + 10.0


class MeshNotReadyError(Exception):
    """The mesh did not become ready; the message says what is missing and why."""


def silent(line: str) -> None:
    """Progress that nobody wants to read."""


class LocalMesh:
    """The processes of one plan; made by ``run`` or, when they may run already, ``attach``."""

    def __init__(self, made: Plan, *, lifeline: subprocess.Popen[bytes] | None = None) -> None:
        self.plan = made
        self.state_dir = Path(made.state_dir)
        self.config_dir = Path(made.config_dir)
        self._lifeline = lifeline

    def __repr__(self) -> str:
        running = record.read(self.state_dir).running()
        return f"LocalMesh({len(running)}/{len(self.plan.programs)} running, {self.state_dir})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @classmethod
    def run(
        cls, made: Plan, *, wait: bool = True, tied: bool = True, progress: Progress = silent
    ) -> "LocalMesh":
        """Start the programs of a plan; those that run already are left alone."""
        lifeline = None
        if not record.read(Path(made.state_dir)).supervised:
            _make_runtime_dir(Path(made.runtime_dir))
            lifeline = _supervise(Path(made.state_dir), tied=tied)
        mesh = cls(made, lifeline=lifeline)
        try:
            for program in made.programs:
                mesh._release(program.name)
            if wait:
                mesh.wait_ready(progress=progress)
        except BaseException:
            if tied:
                mesh.stop()
            raise
        return mesh

    @classmethod
    def attach(cls, state_dir: Path) -> "LocalMesh | None":
        """The mesh of a state directory, running or not; None when there was never one."""
        made = plan.read(state_dir.resolve())
        return cls(made) if made is not None else None

    # --- Where things are ---------------------------------------------------------------------

    @property
    def admin_url(self) -> str:
        """Where the admin API is."""
        return self.plan.admin_url

    def gateway(self, name: str) -> GatewayPlace:
        """A gateway by name; ``url`` is where callers reach it."""
        return next(g for g in self.plan.gateways if g.name == name)

    def node(self, name: str) -> Node:
        """A GPU node by name."""
        return next(n for n in self.plan.nodes if n.place.name == name)

    def log(self, program: str, *, lines: int = 50) -> str:
        """Last lines that a program wrote."""
        return logs.tail(plan.log_file(self.state_dir, program), lines=lines)

    # --- What runs ----------------------------------------------------------------------------

    def pid(self, program: str) -> int | None:
        """Process id of a program; None while it is down."""
        process = record.read(self.state_dir).running().get(program)
        return process.pid if process is not None else None

    def pids(self, program: str) -> list[int]:
        """Process ids of a program and of everything below it; none while it is down."""
        pid = self.pid(program)
        return [] if pid is None else [pid, *identity.descendants(pid)]

    def starts(self, program: str) -> int:
        """How often a program was started."""
        return record.read(self.state_dir).programs.get(program, record.Life()).starts

    # --- Doing harm, and good -----------------------------------------------------------------

    def kill(self, program: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal a program at once; it is started again when it ends."""
        process = record.read(self.state_dir).running().get(program)
        if process is None or not identity.send(process, number):
            raise ProcessLookupError(f"{program} does not run")

    def halt(self, program: str) -> None:
        """Kill -9 a program, and keep it down until it is resumed."""
        self._end(program, signal.SIGKILL)

    def stop_program(self, program: str) -> None:
        """Let a program drain and exit, and keep it down until it is resumed."""
        self._end(program, signal.SIGTERM)

    def resume(self, program: str, *, within_s: float = 10.0) -> int:
        """Start a program that was kept down; its new process id."""
        self._release(program)
        deadline = time.monotonic() + within_s
        while (pid := self.pid(program)) is None:
            if time.monotonic() > deadline:
                raise MeshNotReadyError(f"{program} was not started within {within_s} s")
            time.sleep(_POLL_S)
        return pid

    def wait_ready(
        self, *, within_s: float = limits.LOCAL_READY_S, progress: Progress = silent
    ) -> None:
        """Wait until every program, node, model version and gateway answers."""
        began = time.monotonic()
        waiting = set(readiness.probes(self.plan))
        while waiting:
            done = readiness.answering(waiting)
            for line in readiness.lines(done, after_s=time.monotonic() - began):
                progress(line)
            waiting -= done
            if waiting:
                self._check_progress(waiting, spent_s=time.monotonic() - began, within_s=within_s)
                time.sleep(_POLL_S)

    def stop(self) -> None:
        """Stop everything: gateways first, then sidecars, which drain; what remains is killed."""
        before = record.read(self.state_dir)
        if before.supervisor is not None and identity.send(before.supervisor, signal.SIGTERM):
            identity.wait_gone(before.supervisor, within_s=_STOP_ALL_S)
            identity.send(before.supervisor, signal.SIGKILL)
        if self._lifeline is not None:
            if self._lifeline.stdin is not None:
                self._lifeline.stdin.close()
            self._lifeline.wait()
            self._lifeline = None
        self._stop_unsupervised()
        shutil.rmtree(self.plan.runtime_dir, ignore_errors=True)

    def _stop_unsupervised(self) -> None:
        running = record.read(self.state_dir).running()
        for process in running.values():
            identity.send(process, signal.SIGTERM)
        deadline = time.monotonic() + limits.LOCAL_STOP_S
        for process in running.values():
            identity.wait_gone(process, within_s=deadline - time.monotonic())
            identity.kill_group(process)

    def _end(self, program: str, number: signal.Signals) -> None:
        process = record.read(self.state_dir).running().get(program)
        held = self.state_dir / plan.HELD_DIR
        held.mkdir(exist_ok=True)
        (held / plan.file_name(program)).touch()
        if process is None:
            return
        identity.send(process, number)
        if not identity.wait_gone(process, within_s=limits.LOCAL_STOP_S):
            identity.send(process, signal.SIGKILL)
            identity.wait_gone(process, within_s=limits.LOCAL_STOP_S)

    def _release(self, program: str) -> None:
        (self.state_dir / plan.HELD_DIR / plan.file_name(program)).unlink(missing_ok=True)

    def _check_progress(
        self, waiting: set[readiness.Probe], *, spent_s: float, within_s: float
    ) -> None:
        lives = record.read(self.state_dir).programs
        for name, life in sorted(lives.items()):
            if life.short_lives >= limits.LOCAL_CRASHES:
                raise MeshNotReadyError(
                    f"{name} does not stay up ({life.exit}); the end of "
                    f"{plan.log_file(self.state_dir, name)}:\n{self.log(name, lines=15)}"
                )
        if spent_s > within_s:
            missing = ", ".join(f"{p.part} {p.what}".strip() for p in sorted(waiting)[:8])
            raise MeshNotReadyError(
                f"not ready within {within_s:.0f} s: {missing}; logs are in "
                f"{self.state_dir / 'logs'}"
            )


def _make_runtime_dir(path: Path) -> None:
    # The name can be guessed and the parent may be open to all: a stranger's folder is refused.
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700, parents=True)
    status = path.lstat()
    if status.st_uid != os.getuid() or path.is_symlink():
        raise PermissionError(f"{path} belongs to somebody else; remove it or set XDG_RUNTIME_DIR")
    path.chmod(0o700)


def _supervise(state_dir: Path, *, tied: bool) -> subprocess.Popen[bytes] | None:
    """Start the supervisor and wait until it has taken over the record.

    A tied one is a child and lives as long as its standard input; another one belongs to nobody.
    """
    log = logs.open_log(plan.log_file(state_dir, "local"))
    try:
        child = subprocess.Popen(  # noqa: S603 - our own module
            [
                *(sys.executable, "-m", "headrace_xds.local", str(state_dir)),
                "--tied" if tied else "--background",
            ],
            stdin=subprocess.PIPE if tied else subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    finally:
        os.close(log)
    if not tied:
        child.wait()
    deadline = time.monotonic() + _SUPERVISOR_START_S
    while not record.read(state_dir).supervised:
        if (tied and child.poll() is not None) or time.monotonic() > deadline:
            child.kill()
            child.communicate()
            text = logs.tail(plan.log_file(state_dir, "local"), lines=15)
            raise MeshNotReadyError(f"the supervisor did not start:\n{text}")
        time.sleep(_POLL_S)
    return child if tied else None
