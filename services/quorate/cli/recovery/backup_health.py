"""How a continuous backup reports its state over plain HTTP, for a kubelet and for the operator.

/healthz: 200 while the process runs. /readyz: 200 if the last run succeeded lately, else 503 with
the reason. /status: JSON with `endOffset`, `clusterId`, `secondsSinceSuccess` and `error`.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING

from quorate.cli.output import CommandError
from quorate.process.http import HttpListener, HttpResponse

if TYPE_CHECKING:
    from quorate.backup.manifest import BackupManifest
    from quorate.common.config_types import Address

STALE_S = 60.0
"""A run that has taken this long is reported as a failure."""


class BackupHealth:
    """The state of a continuous backup. The backup's thread sets it, and the listener's reads it.

    stale_s: how old the last success may be, seconds.
    """

    def __init__(
        self, stale_s: float = STALE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stale_s = stale_s
        self._clock = clock
        self._guard = threading.Lock()
        self._manifest: BackupManifest | None = None
        self._succeeded_at: float | None = None
        self._error = ""

    def succeeded(self, manifest: BackupManifest | None) -> None:
        with self._guard:
            self._manifest, self._succeeded_at, self._error = manifest, self._clock(), ""

    def failed(self, error: str) -> None:
        with self._guard:
            self._error = error

    def status(self) -> dict[str, object]:
        """The page /status."""
        with self._guard:
            age_s = None if self._succeeded_at is None else self._clock() - self._succeeded_at
            error = self._error
            if not error and age_s is None:
                error = "the first run has not finished"
            elif not error and age_s is not None and age_s > self._stale_s:
                error = f"a run has taken {age_s:.0f} s so far"
            manifest = self._manifest
            return {
                "endOffset": None if manifest is None else manifest.last_run.end,
                "clusterId": None if manifest is None else manifest.cluster_id,
                "secondsSinceSuccess": None if age_s is None else round(age_s, 1),
                "error": error or None,
            }

    async def _healthz(self) -> HttpResponse:
        return HttpResponse.text(HTTPStatus.OK, "alive")

    async def _readyz(self) -> HttpResponse:
        error = self.status()["error"]
        if error is None:
            return HttpResponse.text(HTTPStatus.OK, "ready")
        return HttpResponse.text(HTTPStatus.SERVICE_UNAVAILABLE, str(error))

    async def _show_status(self) -> HttpResponse:
        body = json.dumps(self.status()).encode()
        return HttpResponse(HTTPStatus.OK, body, "application/json")

    @contextmanager
    def served(self, address: Address) -> Iterator[int]:
        """Serve the pages on a thread; yields the port. CommandError if it cannot listen."""
        pages = {
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/status": self._show_status,
        }
        listener = HttpListener(pages)
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="backup-http", daemon=True)
        thread.start()
        try:
            starting = listener.start(address.host, address.port)
            try:
                asyncio.run_coroutine_threadsafe(starting, loop).result()
            except OSError as error:
                text = f"--http-listener {address}: cannot listen on this address: {error.strerror}"
                raise CommandError(text) from None
            yield listener.port
            asyncio.run_coroutine_threadsafe(listener.stop(), loop).result()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
