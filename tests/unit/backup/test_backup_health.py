"""What a continuous backup says of itself over HTTP, and what `create --report` writes."""

from __future__ import annotations

import json
import signal
import sys
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from quorate.backup.archive import require_manifest
from quorate.backup.stores import LocalStore
from quorate.cli.output import CommandError
from quorate.cli.recovery.backup_health import BackupHealth
from quorate.common.config_types import Address

from tests.integration.support import QUORATE, assert_error, free_ports, here
from tests.processes import HOST, Process
from tests.unit.backup.backup_support import CLUSTER, WrittenLog, back_up, served


def get(port: int, page: str) -> tuple[int, str]:
    connection = HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", page)
        response = connection.getresponse()
        return response.status, response.read().decode().strip()
    finally:
        connection.close()


def status(port: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(get(port, "/status")[1])
    return found


def test_the_pages_show_the_last_run(tmp_path: Path) -> None:
    log = WrittenLog.begun(tmp_path / "log")
    manifest = back_up(log, tmp_path / "archive").manifest
    log.close()
    now = 100.0
    health = BackupHealth(stale_s=30, clock=lambda: now)
    with health.served(Address(HOST, 0)) as port:
        assert get(port, "/healthz")[0] == 200
        assert get(port, "/readyz") == (503, "the first run has not finished")
        health.failed("no leader")
        assert get(port, "/readyz") == (503, "no leader")
        health.succeeded(manifest)
        assert get(port, "/readyz") == (200, "ready")
        now += 31
        found = status(port)
        assert found.pop("error") == "a run has taken 31 s so far"
        assert found == {"endOffset": 3, "clusterId": CLUSTER, "secondsSinceSuccess": 31.0}
        assert get(port, "/readyz")[0] == 503
        with (
            pytest.raises(CommandError, match="cannot listen on this address"),
            BackupHealth().served(Address(HOST, port)),
        ):
            pass
    with pytest.raises(ConnectionRefusedError):
        get(port, "/healthz")


def test_a_process_reports_while_it_follows(tmp_path: Path) -> None:
    log = WrittenLog.begun(tmp_path / "log")
    (port,) = free_ports(1)
    target, report = tmp_path / "archive", tmp_path / "report"
    with served(log) as reader:
        (address,) = reader._quorum.addresses
        connection = ("--bootstrap-controller", address, "--timeout", 1)
        create = (*QUORATE, "backup", "create", *connection, "--to", target, "--report", report)
        follow = ("--follow", "--interval", 0.1, "--http-listener", f"{HOST}:{port}")
        process = Process("backup", tmp_path / "backup.log", sys.executable, *create, *follow)
        process.start()
        process.wait_listening(port)
        process.wait_until("it archives", lambda: status(port)["endOffset"] == 3)
        log.application(2)
        process.wait_until("it continues", lambda: status(port)["endOffset"] == 5)
        assert get(port, "/readyz")[0] == 200
    process.wait_until("it fails", lambda: get(port, "/readyz")[0] == 503)
    assert "no leader within" in status(port)["error"]
    assert status(port)["endOffset"] == 5
    process.send(signal.SIGTERM)
    assert process.wait() == 0
    assert json.loads(report.read_text()) == {"endOffset": 5, "clusterId": CLUSTER}
    assert require_manifest(LocalStore(target)).last_run.end == 5
    log.close()


def test_bad_options(tmp_path: Path) -> None:
    place = ("--bootstrap-controller", f"{HOST}:1", "--to", tmp_path / "archive")
    ran = here("backup", "create", *place, "--http-listener", ":0")
    assert_error(ran, "--http-listener needs --follow", status=2)
    ran = here("backup", "create", *place, "--follow", "--http-listener", "nowhere")
    assert_error(ran, "--http-listener", status=2)
