"""The control server, wired by hand: files and ledger in, streams and admin API out."""

import asyncio
import contextlib
import functools
import gc
import json
import logging
import sqlite3
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import web

from headrace import limits
from headrace.policy.membership import Membership
from headrace_xds import admin, envoy_schema, exposition
from headrace_xds.admin_parts import Parts
from headrace_xds.configuration import Configuration
from headrace_xds.control import Control
from headrace_xds.counters import Counters
from headrace_xds.fleet import Fleet
from headrace_xds.gate.gate import Gate
from headrace_xds.hub import Hub
from headrace_xds.ledger import Ledger
from headrace_xds.observer import StreamObserver
from headrace_xds.orca import LoadReports
from headrace_xds.publish import kept
from headrace_xds.publish.publisher import Publisher
from headrace_xds.revisions import Revisions
from headrace_xds.secrets import SecretStore, load_names, save_names
from headrace_xds.server import AdsServer, serve
from headrace_xds.source.files import changes, write_file
from headrace_xds.source.secrets import Reading, read_secrets, readings
from headrace_xds.status import Statuses

LEDGER_FILE: Final = "ledger.db"
SECRETS_FILE: Final = "secret-names.json"
REVISIONS_FILE: Final = "revisions.db"
QUARANTINE_FILE: Final = "quarantine.json"

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line says."""

    config: Path
    state_dir: Path
    secrets: Path | None = None
    xds_address: str
    admin_address: str
    ports_file: Path | None = None
    return_grace_s: float = limits.RETURN_GRACE_S
    forget_node_s: float = limits.FORGET_NODE_S
    envoy: Path | None = None
    """Envoy that is asked about everything before it is published; None: nobody is asked."""
    canary: str = ""
    """Node id of the gateway that is served first; empty: all are at once."""


class ControlServer:
    """Everything that runs in the process, and the order in which it starts and stops."""

    def __init__(self, options: Options, ledger: Ledger, revisions: Revisions) -> None:
        now = time.monotonic
        self._options = options
        self._ledger = ledger
        self._wake = asyncio.Event()
        self.counters = Counters()
        membership = Membership(
            ledger.record,
            now_s=now(),
            return_grace_s=options.return_grace_s,
            forget_node_s=options.forget_node_s,
        )
        fleet = Fleet()
        self._unkept = asyncio.Event()
        self.publisher = Publisher(
            fleet,
            kept=kept.load(options.state_dir / QUARANTINE_FILE),
            canary=options.canary,
            now=now,
            wall_s=time.time,
            keep=self._unkept.set,
        )
        self._observer = StreamObserver(
            membership,
            fleet,
            self.publisher,
            now=now,
            changed=self._membership_changed,
            counters=self.counters,
        )
        self._hub = Hub(observer=self._observer, group_of=self.publisher.channel_of, now=now)
        self.publisher.attach(self._hub)
        self.secrets = SecretStore(load_names(options.state_dir / SECRETS_FILE))
        self.control = Control(
            publications=self.publisher,
            membership=membership,
            fleet=fleet,
            secrets=self.secrets,
        )
        self.reports = LoadReports(self.control.observe, now=now)
        gate = None
        if options.envoy is not None:
            gate = Gate(options.envoy, options.state_dir, envoy_schema.read(options.envoy))
        self.configuration = Configuration(
            options.config,
            options.state_dir,
            effect=lambda compiled: self.control.configure(compiled, now_s=now()),
            wall_s=time.time,
            gate=gate,
            secrets=lambda: self.secrets.states,
            revisions=revisions,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set; then end streams in good order."""
        if self._options.secrets is not None:
            self._take_secrets(await asyncio.to_thread(read_secrets, self._options.secrets))
        await self.configuration.start()
        # What a mesh is made of lives as long as the server. Looking through hundreds of thousands
        # of objects for garbage stops everything for a fifth of a second, at any moment.
        gc.collect()
        gc.freeze()
        async with (
            self._serving_admin() as admin_port,
            self._serving_streams() as streams,
            asyncio.TaskGroup() as tasks,
        ):
            running = [
                tasks.create_task(self._steer(), name="steer"),
                tasks.create_task(self._follow_files(), name="files"),
                tasks.create_task(self._follow_secrets(), name="secrets"),
                tasks.create_task(self._ask_again(), name="gate"),
                tasks.create_task(self._keep_quarantine(), name="quarantine"),
                tasks.create_task(self.reports.run(), name="load reports"),
            ]
            self._write_ports({"xds": streams.port, "admin": admin_port})
            log.info("serving xDS on port %d, admin on port %d", streams.port, admin_port)
            await stop.wait()
            log.info("stopping: proxies and GPU nodes go on with what they have")
            for task in running:
                task.cancel()

    async def _steer(self) -> None:
        """Decide, record, publish; at every fact, and often enough for weights to follow load."""
        while True:
            self._wake.clear()
            record = self.control.advance(now_s=time.monotonic())
            if record is not None:
                self.reports.follow(self.control.report_addresses())
                try:
                    await asyncio.to_thread(self._ledger.write, record)
                except sqlite3.Error as error:
                    # Serving goes on: an endpoint that is not recorded costs less than none.
                    self.counters.ledger_failures += 1
                    log.error("the ledger cannot be written: %s", error)
            self.control.publish()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limits.WEIGHT_PUSH_PERIOD_S):
                    await self._wake.wait()

    async def _follow_files(self) -> None:
        configuration = self.configuration
        async for folder in changes(self._options.config, lambda: configuration.folder):
            await configuration.reload(folder, instead_of=configuration.folder)
            self._membership_changed()

    async def _ask_again(self) -> None:
        """Bring what the gate gave no verdict on before it again, as long as nobody edits it."""
        configuration = self.configuration
        while True:
            await configuration.undecided.wait()
            await asyncio.sleep(limits.GATE_RETRY_S)
            folder = configuration.folder
            if configuration.undecided.is_set():
                await configuration.reload(folder, instead_of=folder)
                self._membership_changed()

    async def _keep_quarantine(self) -> None:
        while True:
            await self._unkept.wait()
            self._unkept.clear()
            try:
                path = self._options.state_dir / QUARANTINE_FILE
                await asyncio.to_thread(kept.save, path, self.publisher.kept())
            except OSError as error:
                # Until the next restart nothing is lost.
                log.error("the quarantine cannot be kept: %s", error)

    async def _follow_secrets(self) -> None:
        """New content goes out at once; the configuration is judged anew where that may differ."""
        if self._options.secrets is None:
            return
        async for reading in readings(self._options.secrets, lambda: self.secrets.reading):
            before = self.secrets.states
            self._take_secrets(reading)
            self.control.publish_secrets()
            if self.secrets.states != before:
                configuration = self.configuration
                await configuration.reload(configuration.folder, instead_of=configuration.folder)
                self._membership_changed()

    def _take_secrets(self, reading: Reading) -> None:
        known = self.secrets.were_usable
        self.secrets.take(reading)
        if self.secrets.were_usable != known:
            save_names(self._options.state_dir / SECRETS_FILE, self.secrets.were_usable)

    def _membership_changed(self) -> None:
        self.control.note_membership()
        self._wake.set()

    @contextlib.asynccontextmanager
    async def _serving_streams(self) -> AsyncIterator[AdsServer]:
        server = await serve(self._hub, self._options.xds_address)
        try:
            yield server
        finally:
            await server.stop()

    @contextlib.asynccontextmanager
    async def _serving_admin(self) -> AsyncIterator[int]:
        host, _, port = self._options.admin_address.rpartition(":")
        host = host.strip("[]")
        parts = Parts(
            configuration=self.configuration,
            control=self.control,
            observer=self._observer,
            publisher=self.publisher,
            statuses=Statuses(
                self.configuration, self.control, self.publisher, wall=admin.wall_clock
            ),
            now=time.monotonic,
            is_ready=self._why_not_ready,
            render_metrics=functools.partial(
                exposition.render,
                exposition.Observed(
                    control=self.control,
                    publisher=self.publisher,
                    configuration=self.configuration,
                    counters=self.counters,
                    pushes=self._hub.encoder.encoded,
                ),
                time.monotonic,
            ),
        )
        runner = web.AppRunner(admin.admin_app(parts, hosts=frozenset({host})), access_log=None)
        await runner.setup()
        try:
            site = web.TCPSite(runner, host, int(port))
            await site.start()
            yield runner.addresses[0][1]
        finally:
            await runner.cleanup()

    def _why_not_ready(self) -> str | None:
        if self.control.compiled is None:
            return "no configuration is in effect; see /v1/problems"
        return None

    def _write_ports(self, ports: dict[str, int]) -> None:
        if self._options.ports_file is not None:
            write_file(self._options.ports_file, json.dumps(ports) + "\n")


async def run(options: Options, stop: asyncio.Event) -> None:
    """Run the control server until ``stop`` is set."""
    ledger = await asyncio.to_thread(Ledger.open, options.state_dir / LEDGER_FILE)
    revisions = await asyncio.to_thread(Revisions.open, options.state_dir / REVISIONS_FILE)
    try:
        await ControlServer(options, ledger, revisions).run(stop)
    finally:
        ledger.close()
        revisions.close()
