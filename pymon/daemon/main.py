"""The daemon's life: builds the parts, runs the loop, obeys signals, ends in time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pymon import __version__
from pymon.base.clock import SystemClock
from pymon.base.errors import InputError, SourceAbsent
from pymon.capture import spool
from pymon.capture.budget import CaptureSettings
from pymon.capture.bundle import clear_temporary
from pymon.capture.manager import CaptureManager
from pymon.collectors import Collector, all_collectors
from pymon.collectors.nvml import NvmlCollector
from pymon.daemon import config as configuration
from pymon.daemon import folders
from pymon.daemon.agent import AgentServer, Attachment, Handlers
from pymon.daemon.arming import Arming
from pymon.daemon.boxes import Boxes
from pymon.daemon.cases import Cases
from pymon.daemon.config import Config
from pymon.daemon.http import HttpServer, Pages
from pymon.daemon.incidents import Incidents
from pymon.daemon.ledger import Ledger
from pymon.daemon.listener import default_path
from pymon.daemon.nvml.known import KnownGpus
from pymon.daemon.nvml.settings import NvmlSettings
from pymon.daemon.nvml.supervisor import Supervisor
from pymon.daemon.oom import OomWatch
from pymon.daemon.peers import Peer
from pymon.daemon.pipeline import Pipeline
from pymon.daemon.requests import Requests, living
from pymon.daemon.runner import Runner, guarded
from pymon.daemon.schedule import Schedule
from pymon.detectors import ALL
from pymon.exporters.gpu_samples import GpuSamples
from pymon.exporters.journal import Journal
from pymon.exporters.prometheus import DaemonStats, PrometheusRenderer
from pymon.link import wire
from pymon.model.catalog import BY_NAME
from pymon.model.finding import Incident
from pymon.model.snapshot import Snapshot
from pymon.model.training import TrainingProcess
from pymon.sources.cgroup_paths import CgroupPaths
from pymon.sources.cgroupfs import Cgroupfs
from pymon.sources.kineto import KinetoSocket
from pymon.sources.process import Processes
from pymon.sources.procfs import self_usage
from pymon.sources.roots import Roots

log = logging.getLogger(__name__)

END_S = 3.0  # SIGTERM to exit; service managers give more, but nothing here needs it
FIRST_CLIENT_S = 120.0  # a private daemon that nobody came to
DESCRIPTORS = 4096  # three for each of 512 connections, HTTP, files, and as much again
LAST_CLIENT_S = 2.0  # a private daemon whose last client is gone


@dataclass(frozen=True, slots=True)
class Options:
    """The command line; what is None comes from the configuration."""

    config_path: Path | None = None
    socket: Path | None = None
    state_dir: Path | None = None
    http: str | None = None
    kineto: bool | None = None
    private: bool = False
    nvml_library: str = ""  # a test's double of it


class _Orders:
    """What captures may ask of the agent server."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def targets(self) -> tuple[TrainingProcess, ...]:
        connected = self._daemon.server.attachments
        return tuple(p for p in living(self._daemon.pipeline) if p.attach_id in connected)

    def send(self, attach_id: str, order: wire.CaptureOrder | wire.CountersOrder) -> bool:
        return self._daemon.server.send(attach_id, order)


class Daemon:
    """All parts, built from one configuration. Raises PymonError where one that is needed cannot be had."""

    def __init__(self, options: Options, config: Config) -> None:
        self.options, self.config = options, config
        self.server = AgentServer(
            Handlers(
                attached=self._attached,
                ended=self._ended,
                receipt=self._receipt,
                request=self._request,
                welcome=self._welcome,
            ),
            OomWatch(
                Processes(_roots(config).proc), Cgroupfs(CgroupPaths(_roots(config))), SystemClock()
            ),
        )
        self.state_dir = folders.state_dir(options.state_dir, config.daemon.state_dir)
        known = KnownGpus(None if options.private else self.state_dir / "gpus.json")
        self.gpus = Supervisor(_nvml_settings(config, options.nvml_library), known=known)
        self._collectors = all_collectors(
            self.server.seen, self.gpus.read, self._newest, _roots(config)
        )
        self._check_names(config)
        self.clock = SystemClock()
        self.socket = options.socket or (
            Path(config.daemon.socket) if config.daemon.socket else default_path()
        )
        self.pages = Pages(__version__)
        self.http = HttpServer(self.pages)
        self.http_url = "off"
        self.renderer = PrometheusRenderer(
            config.prometheus.series_max, _gpu_samples(config), _families_off(config)
        )
        self.kineto = self._start_kineto()
        self.captures = CaptureManager(
            settings=_capture_settings(config),
            orders=_Orders(self),
            kineto=self.kineto,
            clock=self.clock,
            captures_dir=folders.own(self.state_dir / "captures", 0o750),
            # Trainers of any user make their folder here, and none can touch another's (design: setgid, sticky).
            spool_dir=folders.own(self.state_dir / "spool", 0o700 if options.private else 0o3733),
        )
        clear_temporary(self.captures.captures_dir)
        spool.clear_all(self.captures.spool_dir)
        self.boxes = Boxes(
            folders.own(self.state_dir / "blackbox", 0o700),
            self.clock,
            config.blackbox.keep_max,
            config.blackbox.max_bytes,
        )
        self.arming = Arming.load(self.state_dir / "disarmed.json")
        self.journal = Journal(self.state_dir / "journal.sqlite", config.journal.max_bytes)
        self.pipeline = self._pipeline(config)
        self.schedule = Schedule(self.pipeline.tick)
        self.requests = Requests(
            self.pipeline,
            self.server,
            self.socket,
            self.state_dir,
            "off",
            self.gpus,
            self.boxes,
            self.arming,
        )
        self._end = asyncio.Event()

    async def run(self) -> None:
        """Until a signal, or until a private daemon is needed no more."""
        self.boxes.start()
        self.server.start(self.socket, 0o600 if self.options.private else 0o666)
        try:
            await self._start_http()
            self._on_signals()
            tasks = [self._task(self.schedule.run())]
            if self.options.private:
                tasks.append(self._task(self._until_unused()))
            print(f"ready socket={self.socket} http={self.http_url}", flush=True)  # noqa: T201
            ending = self._task(_wait(self._end))
            done, _ = await asyncio.wait({*tasks, ending}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # a broken loop is a failed daemon, not a silent one
        finally:
            await self._stop()

    def _pipeline(self, config: Config) -> Pipeline:
        ledger = Ledger(self.clock)
        return Pipeline(
            clock=self.clock,
            runner=Runner(self._enabled(config)),
            detectors=[d for d in ALL if d.name not in config.detectors.disabled],
            incidents=Incidents(self.clock, config.detectors.quiet_s, config.detectors.cooldown_s),
            cases=Cases(self.clock, self.captures, ledger, self.journal),
            ledger=ledger,
            journal=self.journal,
            publish=self._publish,
            automatic=config.capture.automatic,
            steps=config.capture.steps,
        )

    def _newest(self) -> Snapshot | None:
        return self.pipeline.newest

    def _check_names(self, config: Config) -> None:
        known = [collector.name for collector in self._collectors]
        configuration.check_names("collectors", config.collectors.disabled, known)
        configuration.check_names("detectors", config.detectors.disabled, [d.name for d in ALL])
        configuration.matching("prometheus", config.prometheus.disabled, BY_NAME)

    def _enabled(self, config: Config) -> list[Collector]:
        return [c for c in self._collectors if c.name not in config.collectors.disabled]

    def _start_kineto(self) -> KinetoSocket | None:
        wanted = self.options.kineto
        if wanted is None:
            wanted = self.config.kineto.enabled and not self.options.private
        if not wanted:
            return None
        kineto = KinetoSocket()
        try:
            kineto.start()
        except SourceAbsent as err:
            log.warning("%s", err)
            return None
        return kineto

    async def _start_http(self) -> None:
        given = self.options.http
        if given is None:
            given = "off" if self.options.private else self.config.http.listen
        if (address := configuration.listen_address(given)) is not None:
            self.http_url = await self.http.start(*address)
            self.requests.http_url = self.http_url

    def _publish(self, snapshot: Snapshot, incidents: tuple[Incident, ...]) -> None:
        render = partial(self._render, snapshot, incidents)
        self.pages.update(lambda: guarded("rendering /metrics", render, b""))

    def _render(self, snapshot: Snapshot, incidents: tuple[Incident, ...]) -> bytes:
        usage = self_usage()
        stats = DaemonStats(
            version=__version__,
            cpu_s_total=usage.cpu_s,
            rss_bytes=usage.rss_bytes,
            ticks_skipped_total=self.schedule.skipped_total,
            incidents_total=self.pipeline.ledger.incidents_total,
            captures_total=self.pipeline.ledger.captures_total,
            journal_dropped_total=self.journal.dropped_total,
            connections_refused_total=self.server.refused_total,
            pages_refused_total=self.server.pages_refused_total,
        )
        return self.renderer.render(snapshot, incidents, stats)

    def _attached(self, attachment: Attachment) -> None:
        hello = attachment.hello
        log.info("attached pid %d rank %s (%s)", attachment.pid, hello.rank, hello.script)

    def _welcome(self, hello: wire.Hello, peer: Peer) -> wire.Welcome:
        armed = not self.arming.holds(peer.uid, hello.job_id)
        return wire.Welcome(armed=armed, budget_ratio=self.config.probe.budget_ratio)

    def _ended(self, attachment: Attachment) -> None:
        log.info("gone pid %d: %s", attachment.pid, attachment.ended)
        if not attachment.dropped:  # else its process lives on, and its page is worth nothing
            self.boxes.keep(attachment)
        self.captures.lost(attachment.hello.attach_id)

    def _receipt(self, attach_id: str, receipt: wire.Receipt) -> None:
        self.captures.receipt(attach_id, receipt)

    def _request(self, peer: Peer, request: wire.Request) -> AsyncIterator[wire.Reply]:
        return self.requests.answer(peer, request)

    def _on_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        loop.add_signal_handler(
            signal.SIGUSR1,
            lambda: self.pipeline.cases.start((), self.config.capture.steps, "signal"),
        )

    def _reload(self) -> None:
        """A bad file changes nothing; socket, state folder and listener need a restart."""
        try:
            config = configuration.load(self.options.config_path)
            self._check_names(config)
        except InputError as err:
            log.error("reload: %s; the old configuration stays", err)
            return
        self.config = config
        pipeline = self.pipeline
        pipeline.detectors = [d for d in ALL if d.name not in config.detectors.disabled]
        pipeline.runner.collectors = self._enabled(config)
        pipeline.automatic, pipeline.steps = config.capture.automatic, config.capture.steps
        pipeline.incidents.quiet_s = config.detectors.quiet_s
        pipeline.incidents.cooldown_s = config.detectors.cooldown_s
        self.captures.change(_capture_settings(config))
        self.renderer.series_max = config.prometheus.series_max
        self.renderer.gpus = _gpu_samples(config)
        self.renderer.disabled = _families_off(config)
        self.gpus.settings = _nvml_settings(config, self.options.nvml_library)
        if NvmlCollector.name in config.collectors.disabled:
            self.gpus.kill_workers()
        self.server.welcome_again()
        log.info("configuration reloaded")

    async def _until_unused(self) -> None:
        loop = asyncio.get_running_loop()
        needed_s = loop.time()
        while True:
            await asyncio.sleep(0.2)
            if self.server.clients:
                needed_s = loop.time()
            wait_s = LAST_CLIENT_S if self.server.clients_total else FIRST_CLIENT_S
            if loop.time() - needed_s > wait_s and not self.pipeline.cases.under_way:
                return

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(work)

    async def _stop(self) -> None:
        log.info("ending")
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._close(), END_S)

    async def _close(self) -> None:
        self.gpus.close()
        await self.server.stop()
        await self.http.stop()
        if self.kineto is not None:
            self.kineto.stop()
        await asyncio.to_thread(self.boxes.close, END_S / 3)
        await asyncio.to_thread(self.journal.close, END_S / 2)


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


def run(options: Options) -> None:
    """Runs the daemon to its end and leaves the process. Raises PymonError where it cannot start."""
    config = configuration.load(options.config_path)
    logging.basicConfig(
        level=config.daemon.log_level.upper(),
        format="%(asctime)s %(levelname)s %(message)s",
        stream=sys.stderr,
    )
    _allow_descriptors()
    asyncio.run(_main(options, config))


def _allow_descriptors() -> None:
    """Shells and service managers allow 1,024, the agent socket's connections alone may take more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < DESCRIPTORS:  # -1: no limit
        wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _main(options: Options, config: Config) -> None:
    daemon = Daemon(options, config)
    await daemon.run()
    sys.stdout.flush()
    sys.stderr.flush()
    # Collectors may hang in the kernel or a driver for good: no thread of theirs may keep the daemon from ending.
    os._exit(0)


def _nvml_settings(config: Config, library: str) -> NvmlSettings:
    nvml = config.nvml
    return NvmlSettings(
        call_timeout_s=nvml.call_timeout_s,
        init_timeout_s=nvml.init_timeout_s,
        per_link=nvml.per_link,
        process_utilization=nvml.processes,
        library=library,
    )


def _roots(config: Config) -> Roots:
    return Roots(config.host.proc, config.host.sys, config.host.kubelet)


def _families_off(config: Config) -> frozenset[str]:
    return configuration.matching("prometheus", config.prometheus.disabled, BY_NAME)


def _gpu_samples(config: Config) -> GpuSamples:
    return GpuSamples(config.nvml.processes_max if config.nvml.processes else 0)


def _capture_settings(config: Config) -> CaptureSettings:
    capture = config.capture
    return CaptureSettings(
        max_s=capture.max_s,
        max_events=capture.max_events,
        min_free_bytes=capture.min_free_bytes,
        quota_bytes=capture.quota_bytes,
        cooldown_s=capture.cooldown_s,
    )
