"""Probes and metrics of the operator over HTTP, and the heartbeat of its event loop.

The event loop itself serves the pages. If it hangs, the probe of /healthz fails and the kubelet
restarts the container; meanwhile the lease is not renewed (`Heartbeat`), so that another operator
takes over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from http import HTTPStatus

from quorate.process.http import HttpListener, HttpResponse

from quorate_operator.kube.lease import LeaderLease
from quorate_operator.metrics import CONTENT_TYPE, OperatorMetrics

BEAT_S = 1.0
HUNG_S = 10.0
"""An event loop that has not run for this long hangs."""


class Heartbeat:
    """When the event loop last ran. `is_alive` may be called on any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at = clock()

    def beat(self) -> None:
        self._at = self._clock()

    def is_alive(self) -> bool:
        return self._clock() - self._at < HUNG_S

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            self.beat()
            await asyncio.sleep(BEAT_S)


def listener(lease: LeaderLease, metrics: OperatorMetrics) -> HttpListener:
    """The listener of /healthz, /readyz and /metrics."""

    async def healthz() -> HttpResponse:
        return HttpResponse.text(HTTPStatus.OK, "the event loop runs")

    async def readyz() -> HttpResponse:
        if not lease.is_answered:
            text = "the API server does not answer requests for the lease"
            return HttpResponse.text(HTTPStatus.SERVICE_UNAVAILABLE, text)
        return HttpResponse.text(HTTPStatus.OK, "active" if lease.is_held else "standby")

    async def render() -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, metrics.render(), CONTENT_TYPE)

    pages = {"/healthz": healthz, "/readyz": readyz, "/metrics": render}
    return HttpListener(pages, costly=("/metrics",))
