"""The commands that compare images and look up advisories, with a builder and a server of ours."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.tools import image_diff, supply

ROOT = Path(__file__).resolve().parents[3]


def archive(path: Path, files: Mapping[str, bytes], mtime: int = 0, mode: int = 0o644) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(content), mtime, mode
            tar.addfile(member, io.BytesIO(content))
    return path


def test_contents_leave_out_what_a_build_mounts(tmp_path: Path) -> None:
    files = {"./etc/hosts": b"x", "./etc/passwd": b"y", "proc/1": b"", "run/lock": b"", "./": b""}
    assert set(image_diff.contents(archive(tmp_path / "a.tar", files))) == {"etc/passwd"}


@pytest.mark.parametrize(
    ("files", "mtime", "mode"),
    [
        ({"opt/a": b"2"}, 0, 0o644),
        ({"opt/a": b"1"}, 1, 0o644),
        ({"opt/a": b"1"}, 0, 0o600),
        ({}, 0, 0o644),
        ({"opt/a": b"1", "opt/b": b""}, 0, 0o644),
    ],
)
def test_every_kind_of_difference_is_found(
    tmp_path: Path, files: Mapping[str, bytes], mtime: int, mode: int
) -> None:
    first = image_diff.contents(archive(tmp_path / "1.tar", {"opt/a": b"1"}))
    second = image_diff.contents(archive(tmp_path / "2.tar", files, mtime, mode))
    assert image_diff.differences(first, first) == []
    (line,) = image_diff.differences(first, second)
    assert line.startswith("/opt/")


def compare(tmp_path: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run the command with a builder that is this script; "$out" is the archive to write."""
    builder = tmp_path / "builder"
    find = "for each; do case $each in type=tar,dest=*) out=${each#type=tar,dest=};; esac; done\n"
    builder.write_text(f"#!/bin/sh\n{find}{script}\n")
    builder.chmod(0o755)
    command = (sys.executable, "tests/tools/image_diff.py", "controller")
    environment = {**os.environ, "BUILDER": str(builder)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_equal_builds_exit_with_0_and_others_with_1(tmp_path: Path) -> None:
    archive(tmp_path / "image.tar", {"opt/a": b"1"})
    same = compare(tmp_path, f'cp {tmp_path}/image.tar "$out"')
    assert (same.returncode, same.stdout.splitlines()[-1]) == (0, "no file differs")
    archive(tmp_path / "other.tar", {"opt/a": b"2"})
    changing = f'cp {tmp_path}/image.tar "$out"; mv {tmp_path}/other.tar {tmp_path}/image.tar; true'
    other = compare(tmp_path, changing)
    assert (other.returncode, other.stdout.splitlines()[-1]) == (1, "files that differ: 1")


def test_a_build_that_fails_exits_with_2(tmp_path: Path) -> None:
    failed = compare(tmp_path, "exit 1")
    assert failed.returncode == 2
    assert "the build failed" in failed.stderr


@contextmanager
def answering(status: int, content: bytes) -> Iterator[str]:
    """A server that gives one answer to everything; its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "content", "problem"),
    [
        (200, json.dumps({"vulnerabilities": [{"id": "PYSEC-1"}]}).encode(), None),
        (200, json.dumps({"vulnerabilities": []}).encode(), "the answer has no advisories"),
        (404, b"", "HTTP status 404"),
    ],
)
def test_an_audit_knows_a_source_without_advisories(
    monkeypatch: pytest.MonkeyPatch, status: int, content: bytes, problem: str | None
) -> None:
    with answering(status, content) as url:
        monkeypatch.setattr(supply, "KNOWN", url)
        assert supply.source_problem() == problem
        if problem is not None:
            assert supply.main(["audit"]) == supply.UNREACHABLE


def test_a_missing_tool_is_named_with_its_remedy() -> None:
    with pytest.raises(SystemExit, match=r"no-such-tool is not installed: pip install .*release"):
        supply.run(["no-such-tool"])
