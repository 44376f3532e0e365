"""The archive of the classes that Spark loads."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from quorate.spark.java import archive_options

from tests.processes import QUORATE

WRITING_S = 120
HEADER = b"\xa8\xba\x0b\xf0"


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    java.touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    return tmp_path / "cache/quorate"


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    made = tmp_path / "jars"
    made.mkdir()
    return made


def named(options: str) -> tuple[str, Path]:
    """The option that names the archive, and the archive."""
    option, _, path = options.rsplit(maxsplit=1)[-1].partition("=")
    return option, Path(path)


def test_an_archive_is_written_once_and_then_used(cache: Path, jars: Path) -> None:
    option, new = named(archive_options(jars))
    assert (option, new.parent) == ("-XX:ArchiveClassesAtExit", cache)
    # A JVM that was killed while it wrote the archive has not written the header.
    new.write_bytes(bytes(4096))
    assert named(archive_options(jars)) == (option, new)
    assert not new.exists()
    # What was written before the machine started may lack any part.
    new.write_bytes(HEADER)
    os.utime(new, (1, 1))
    assert named(archive_options(jars)) == (option, new)
    new.write_bytes(HEADER)
    archive = new.with_suffix(".jsa")
    for _ in range(2):
        assert named(archive_options(jars)) == ("-XX:SharedArchiveFile", archive)
        assert (archive.read_bytes(), new.exists()) == (HEADER, False)
        new.write_bytes(HEADER)


@pytest.mark.parametrize("changed", ["bin/java", "jars"])
def test_another_java_or_spark_gets_the_only_archive(
    cache: Path, jars: Path, tmp_path: Path, changed: str
) -> None:
    _, new = named(archive_options(jars))
    new.write_bytes(HEADER)
    named(archive_options(jars))
    os.utime(tmp_path / changed, (1, 1))
    option, other = named(archive_options(jars))
    assert (option, other != new) == ("-XX:ArchiveClassesAtExit", True)
    assert list(cache.iterdir()) == []


def test_without_a_place_for_it_there_is_no_archive(cache: Path, jars: Path) -> None:
    assert archive_options(jars / "nowhere") == ""
    cache.parent.write_text("not a folder")
    assert archive_options(jars) == ""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_results_are_the_same_with_an_archive(golden: Path, tmp_path: Path) -> None:
    command = [sys.executable, *QUORATE, "pipeline", "state", golden / "full-history/controller-1"]
    variables = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}

    def run() -> tuple[int, str, str]:
        done = subprocess.run(command, env=variables, cwd=tmp_path, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    first = run()
    assert (first[0], first[2]) == (0, "")
    deadline = time.monotonic() + WRITING_S
    while not (new := list(tmp_path.glob("quorate/*.new"))) or not header_of(new[0]):
        assert time.monotonic() < deadline, "the JVM wrote no archive"
        time.sleep(0.2)
    assert run() == first
    (archive,) = tmp_path.glob("quorate/*")
    assert archive.suffix == ".jsa"
    # No JVM starts with a damaged archive: it is deleted.
    os.truncate(archive, archive.stat().st_size // 2)
    status, _, error = run()
    assert (status, error.count("\n")) == (1, 1)
    assert error.startswith("quorate: error: Spark did not start: ")
    assert run() == first


def header_of(archive: Path) -> bool:
    with archive.open("rb") as file:
        return any(file.read(4))
