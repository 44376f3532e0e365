"""Finds and checks Java, and keeps an archive of the classes that Spark loads.

A JVM takes seconds to load and verify Spark's classes. It writes them to an archive when it exits,
and later ones map them (JEP 350). The JVM itself checks that an archive fits it and its class path,
and does without one that does not.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from quorate.spark.errors import JavaError

JAVA_MIN = 17
JAVA_TIMEOUT_S = 30
ARCHIVES = "spark-classes-"
"""The prefix of their names."""
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


def java_command() -> str | None:
    """The `java` that Spark will start: that of JAVA_HOME, else the one on the PATH."""
    home = os.environ.get("JAVA_HOME", "")
    if home:
        return str(Path(home) / "bin" / "java")
    return shutil.which("java")


def java_version(command: str) -> int | None:
    """The major version that a `java` reports, None if it does not run or reports none."""
    try:
        completed = subprocess.run(
            [command, "-version"],
            capture_output=True,
            text=True,
            timeout=JAVA_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(completed.stderr + completed.stdout)
    if found is None:
        return None
    # Java 8 calls itself 1.8.
    return int(found[2] or 8) if found[1] == "1" else int(found[1])


def is_remote() -> bool:
    """Whether $SPARK_REMOTE names a server of Spark Connect, which needs no Java here."""
    return bool(os.environ.get("SPARK_REMOTE"))


def check_java() -> None:
    """Raise JavaError if Spark would start a Java here that it cannot run on."""
    if is_remote():
        return
    command = java_command()
    need = f"Spark needs Java {JAVA_MIN} or later (set JAVA_HOME, or put java on the PATH)"
    if command is None:
        raise JavaError(f"Java is not installed: {need}")
    version = java_version(command)
    if version is None:
        raise JavaError(f"{command} cannot be run as Java: {need}")
    if version < JAVA_MIN:
        raise JavaError(f"{command} is Java {version}: {need}")


def archive_options(jars: Path) -> str:
    """The options with which a JVM uses the archive of Spark's classes, or writes it.

    jars: the folder of Spark's jars. Empty if there is no place for an archive. Only the archive
    that was written last is kept, because each takes about 170 MB.
    """
    try:
        archive = _folder() / f"{ARCHIVES}{_installation(jars)}.jsa"
        new = archive.with_suffix(".new")
        if not archive.exists() and _is_whole(new):
            with new.open("rb") as file:
                os.fsync(file.fileno())
            new.rename(archive)
        if archive.exists():
            # Two jobs at a time may both have written it.
            new.unlink(missing_ok=True)
            return f"-XX:SharedArchiveFile={shlex.quote(str(archive))}"
        archive.parent.mkdir(parents=True, exist_ok=True)
        forget_archives()
    except (OSError, RuntimeError):  # RuntimeError: no home directory
        return ""
    return f"-XX:ArchiveClassesAtExit={shlex.quote(str(new))}"


def forget_archives() -> None:
    """Delete the archives, such as one with which no JVM starts."""
    with suppress(OSError, RuntimeError):
        for archive in _folder().glob(f"{ARCHIVES}*"):
            archive.unlink(missing_ok=True)


def _folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "quorate"


def _installation(jars: Path) -> str:
    """What tells this Java and this Spark from others."""
    parts = [jars, Path(java_command() or "java")]
    told = "\n".join(f"{path.resolve()} {path.stat().st_mtime_ns}" for path in parts)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _is_whole(archive: Path) -> bool:
    """Whether a JVM has written the archive to its end.

    It writes the header last, but after a power failure any part may be missing.
    """
    started = time.time() - time.monotonic()
    with suppress(FileNotFoundError), archive.open("rb") as file:
        return os.fstat(file.fileno()).st_mtime > started and any(file.read(4))
    return False
