"""The telemetry of a node: the HTTP listener with its pages, metrics and traces.

Telemetry is off unless a setting enables it. It starts before all other parts of the process, so
that a node that waits to be formatted, or cannot find its quorum, can be monitored too.

`PATHS` lists the pages. They are unauthenticated.

Readiness describes this member only: it leads, or it follows a leader that responds. Without a
leader no member is ready. Liveness (/healthz) does not depend on the quorum, because restarting
members while others are down makes an outage worse.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from quorate.process.http import HttpListener, HttpResponse
from quorate.process.node_config import NodeConfig
from quorate.process.node_metrics import file_samples, quorum_samples
from quorate.raft.roles import Leader
from quorate.rpc.server.connections import ConnectionGuard
from quorate.runtime.driver import RaftDriver
from quorate.runtime.tasks import supervise
from quorate.telemetry.extra import ExtraMissingError, TelemetryError
from quorate.telemetry.histogram import Distribution
from quorate.telemetry.process import process_samples
from quorate.telemetry.rates import Rate
from quorate.telemetry.samples import Sample
from quorate.version import __version__

if TYPE_CHECKING:
    from quorate.runtime.tracing import WriteTraces
    from quorate.telemetry.export import Metrics
    from quorate.telemetry.tracing import Tracing

LOGGER = logging.getLogger(__name__)

SAMPLE_PERIOD_S = 1.0
READ_TIMEOUT_S = 2.0
"""How long a collecting thread waits for the event loop, seconds."""
CLOSE_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class HttpPath:
    """A page of the HTTP listener."""

    path: str
    says: str
    is_costly: bool = False
    """Whether the page takes long to render: see `http`."""


PATHS: Final = (
    HttpPath("/healthz", "200: the process is alive and its event loop responds"),
    HttpPath(
        "/readyz",
        "200: this node leads, or follows the leader (`is_attached`), and a broker is also "
        "unfenced; otherwise 503 with the reason",
    ),
    HttpPath(
        "/quorumz",
        "200: this node knows the leader, and the leader's epoch commits; otherwise 503 with the "
        "reason",
    ),
    HttpPath("/metrics", "all metrics in Prometheus' text format", is_costly=True),
)
"""All pages of the HTTP listener."""


class NodeTelemetry:
    """The telemetry of one node. Start it first, stop it last; `watch` the driver once it exists.

    waits_for: why there is no driver yet, "" while the process starts. connections: the connection
    guard of the gRPC server, set once the server listens.
    """

    def __init__(self, config: NodeConfig, *, watches_connections: bool = False) -> None:
        """Prepare the endpoints. watches_connections: whether `connections` will be set."""
        self.waits_for = ""
        self._watches_connections = watches_connections
        self.connections: ConnectionGuard | None = None
        self._config = config
        self._driver: RaftDriver | None = None
        self._samples: Callable[[], Iterable[Sample]] = tuple
        self._why_node_not_ready: Callable[[], str] = str
        self._metrics: Metrics | None = None
        self._tracing: Tracing | None = None
        self._http: HttpListener | None = None
        self._sampler: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._appended = Rate()
        self._fetched = Rate()
        self._idle = Rate()
        self._progress = (0, 0, 0.0)

    @staticmethod
    def is_wanted(config: NodeConfig) -> bool:
        return config.http_listener is not None or config.otlp_endpoint is not None

    async def start(self) -> None:
        """Start to listen and to export. Raises TelemetryError."""
        if not self.is_wanted(self._config):
            return
        self._loop = asyncio.get_running_loop()
        self._metrics = self._open_metrics()
        if self._config.trace_sample_ratio > 0:
            self._tracing = self._open_tracing()
        self._sampler = supervise(self._sample(), "telemetry", _sampling_failed)
        address = self._config.http_listener
        if address is None:
            return
        pages = {
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/quorumz": self._quorumz,
            "/metrics": self._show_metrics,
        }
        self._http = HttpListener(
            {each.path: pages[each.path] for each in PATHS},
            costly=[each.path for each in PATHS if each.is_costly],
        )
        try:
            await self._http.start(address.host, address.port)
        except OSError as error:
            raise TelemetryError(
                f"quorate.http.listener={address}: cannot listen on this address: {error.strerror}"
            ) from None

    def watch(
        self,
        driver: RaftDriver,
        samples: Callable[[], Iterable[Sample]] = tuple,
        why_not_ready: Callable[[], str] = str,
    ) -> None:
        """Report on the replica of `driver`.

        samples: further metrics, read on the event loop. why_not_ready: why this node is not ready
        although its replica is, or "".
        """
        self._driver, self._samples, self._why_node_not_ready = driver, samples, why_not_ready

    def traces(self) -> WriteTraces | None:
        """The traces of appends, for the driver; None if tracing is off."""
        if self._tracing is None:
            return None
        from quorate.runtime.tracing import WriteTraces  # noqa: PLC0415 - needs the extra

        return WriteTraces(self._tracing, self._config.node_id)

    async def stop(self) -> None:
        if self._sampler is not None:
            self._sampler.cancel()
        if self._http is not None:
            await self._http.stop()
        if self._metrics is not None:
            await _in_background(self._close, CLOSE_TIMEOUT_S)

    def _close(self) -> None:
        """Export the pending metrics and spans. May block."""
        for each in (self._metrics, self._tracing):
            if each is not None:
                each.close()

    # --- metrics ----------------------------------------------------------------------------------

    def _open_metrics(self) -> Metrics:
        config = self._config
        wanted_by = "quorate.http.listener" if config.http_listener else "quorate.otlp.endpoint"
        otlp = None
        try:
            from quorate.telemetry.export import Metrics  # noqa: PLC0415 - only where it is wanted

            if config.otlp_endpoint:
                from quorate.telemetry.otlp import metric_exporter  # noqa: PLC0415

                otlp = metric_exporter(config.otlp_endpoint)
        except ImportError as error:
            raise ExtraMissingError(wanted_by, error.name) from None
        return Metrics(self._collect, self._distributions, self._resource, otlp)

    def _open_tracing(self) -> Tracing:
        config = self._config
        assert config.otlp_endpoint is not None, "the configuration refuses traces without it"
        from quorate.telemetry.otlp import span_exporter  # noqa: PLC0415 - needs the extra
        from quorate.telemetry.tracing import Tracing  # noqa: PLC0415

        exporter = span_exporter(config.otlp_endpoint)
        return Tracing.to(exporter, config.trace_sample_ratio, self._resource)

    @property
    def _resource(self) -> dict[str, str]:
        return {"service.instance.id": str(self._config.node_id), "service.version": __version__}

    def _collect(self) -> Iterable[Sample]:
        """All samples. Called on the collecting thread."""
        samples = [Sample("formatted", float(self._driver is not None))]
        samples += process_samples(self._config.metadata_log_dir)
        guard = self.connections
        if self._watches_connections:
            samples.append(Sample("open-connections", 0 if guard is None else guard.open_count))
            closed = 0 if guard is None else guard.closed_count
            samples.append(Sample("closed-connections", closed))
        if self._driver is not None:
            samples += self._on_loop(self._driver)
            samples += file_samples(self._driver.log)
        return samples

    def _on_loop(self, driver: RaftDriver) -> list[Sample]:
        """The samples that only the event loop's thread may read; none if it does not respond."""
        assert self._loop is not None, "start() comes first"
        future: concurrent.futures.Future[list[Sample]] = concurrent.futures.Future()

        def read() -> None:
            try:
                own = [*quorum_samples(driver), *self._own_samples(), *self._samples()]
                future.set_result(own)
            except Exception as error:
                future.set_exception(error)

        try:
            self._loop.call_soon_threadsafe(read)
            return future.result(READ_TIMEOUT_S)
        except (RuntimeError, TimeoutError):
            return []

    def _own_samples(self) -> Iterable[Sample]:
        yield Sample("append-records-rate", self._appended.per_second())
        yield Sample("fetch-records-rate", self._fetched.per_second())
        yield Sample("ready", float(not self._why_not_ready()))
        yield Sample("poll-idle-ratio", min(1.0, max(0.0, self._idle.per_second())))

    def _distributions(self) -> dict[str, Distribution]:
        driver = self._driver
        if driver is None:
            return {}
        return {
            "commit-latency": driver.recorder.commit_latency.read(),
            "election-latency": driver.recorder.election_latency.read(),
            "fsync-latency": driver.log.sync_latency.read(),
        }

    async def _sample(self) -> None:
        """Periodically sample the totals behind the rates, and the time of the last commit."""
        loop = asyncio.get_running_loop()
        while True:
            now_s = loop.time()
            # Wall-clock time minus CPU time: the time in which the loop's thread is idle.
            self._idle.sample(now_s, now_s - time.thread_time())
            if self._driver is not None:
                recorder, node = self._driver.recorder, self._driver.node
                self._appended.sample(now_s, recorder.appended_records)
                self._fetched.sample(now_s, recorder.fetched_records)
                committed = node.high_watermark
                if committed != self._progress[0] or committed >= node.core.log.end_offset:
                    self._progress = (committed, node.epoch, now_s)
            await asyncio.sleep(SAMPLE_PERIOD_S)

    async def _show_metrics(self) -> HttpResponse:
        assert self._metrics is not None, "start() opened them"
        from quorate.telemetry.export import CONTENT_TYPE  # noqa: PLC0415 - loaded by start()

        body = await asyncio.to_thread(self._metrics.render)
        return HttpResponse(HTTPStatus.OK, body, CONTENT_TYPE)

    # --- health -----------------------------------------------------------------------------------

    async def _healthz(self) -> HttpResponse:
        return HttpResponse.text(HTTPStatus.OK, "alive")

    async def _readyz(self) -> HttpResponse:
        return _page(self._why_not_ready(), "ready")

    async def _quorumz(self) -> HttpResponse:
        return _page(self._why_no_quorum(), "the quorum has a leader and commits")

    def _why_not_ready(self) -> str:
        return self._why_not_attached() or self._why_node_not_ready()

    def _why_not_attached(self) -> str:
        if self._driver is None:
            return self.waits_for or f"the {self._config.role} is starting"
        node = self._driver.node
        if node.is_attached:
            return ""
        leader = node.current_leader.id
        if leader is None:
            return node.core.why_no_leader() or "no leader is known"
        return f"leader {leader} of epoch {node.epoch} has not answered within the fetch timeout"

    def _why_no_quorum(self) -> str:
        """Why the quorum does not commit; "" if a leader commits, as far as this member knows."""
        why = self._why_not_attached()
        if why or self._driver is None:
            return why
        node, core = self._driver.node, self._driver.node.core
        if node.epoch_before(node.high_watermark) != node.epoch:
            return f"no record of epoch {node.epoch} is committed yet"
        timeout_s = core.config.fetch_timeout_ms / 1000
        committed, _, since_s = self._progress
        waited_s = asyncio.get_running_loop().time() - since_s
        is_behind = committed == node.high_watermark < core.log.end_offset
        if is_behind and waited_s > timeout_s + SAMPLE_PERIOD_S:
            return f"offset {committed} has not been committed for {waited_s:.0f} s"
        return _why_no_majority(self._driver) if isinstance(core.role, Leader) else ""


def _sampling_failed(error: BaseException) -> None:
    """Log the failure, and go on: the replica does not depend on its rates."""
    LOGGER.error("%s: rates and /quorumz are no longer updated", error)


async def _in_background(work: Callable[[], None], timeout_s: float) -> None:
    """Run `work`, which may block, in a daemon thread, and wait for it at most `timeout_s` seconds.

    A collector that does not respond must not keep the process alive.
    """
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def run() -> None:
        work()
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=run, name="quorate-telemetry-end", daemon=True).start()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(done.wait(), timeout_s)


def _why_no_majority(driver: RaftDriver) -> str:
    samples = {sample.name: sample.value for sample in quorum_samples(driver)}
    voters = driver.node.voters
    online = samples["number-of-voters"] - samples["number-of-offline-voters"]
    if online >= voters.majority:
        return ""
    return f"only {online:.0f} of {len(voters)} voters fetch; a commit needs {voters.majority}"


def _page(why_not: str, otherwise: str) -> HttpResponse:
    if why_not:
        return HttpResponse.text(HTTPStatus.SERVICE_UNAVAILABLE, why_not)
    return HttpResponse.text(HTTPStatus.OK, otherwise)
