"""Syncs of the log are timed, and slow ones are told, but not each of them."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

import pytest
from quorate.log import writer
from quorate.log.config import LogConfig
from quorate.log.disk import Disk
from quorate.log.metadata_log import MetadataLog
from quorate.records.batch import build_data_batch, stamp


class SlowDisk(Disk):
    """Takes its time to sync."""

    def sync_data(self, descriptor: int) -> None:
        time.sleep(0.06)
        super().sync_data(descriptor)


def test_slow_syncs_are_timed_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(writer, "SLOW_SYNC_S", 0.05)
    durable = threading.Event()

    def on_durable(_ticket: int) -> None:
        durable.set()

    def on_failure(error: BaseException) -> None:
        raise error

    log = MetadataLog.open(
        tmp_path, LogConfig(), on_durable=on_durable, on_failure=on_failure, disk=SlowDisk()
    )
    with caplog.at_level(logging.WARNING):
        for ticket in range(1, 4):
            batch = build_data_batch([(b"k", b"v")], 0)
            stamp(batch, log.end_offset, 1)
            durable.clear()
            log.append(ticket, [batch])
            assert durable.wait(10)
    syncs = log.sync_latency.read()
    log.close()
    assert syncs.count == 3
    assert syncs.total >= 0.18
    (told,) = [record for record in caplog.records if "is slow" in record.message]
    assert str(tmp_path) in told.message
