"""Two small files in a broker's log directory, both in Kafka's format.

`replication-offset-checkpoint`   the high watermark of each partition: a version, a count, then
                                  one line per partition with topic, partition and offset
`.kafka_cleanshutdown`            written by a process after it has flushed all logs, with its
                                  broker epoch; the next process removes it at startup

A restarting broker reports the epoch of its last clean shutdown to the controller (KIP-966,
PreviousBrokerEpoch). If that is not the epoch of its last registration, its unflushed tail may be
lost, and the controller removes it from every ISR that has other members.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from quorate.log.disk import Disk
from quorate.log.errors import LogError

HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
NO_EPOCH = -1


def read_high_watermarks(log_dirs: Iterable[Path]) -> dict[tuple[str, int], int]:
    """Read high watermarks by topic and partition; skip missing files. LogError if malformed."""
    found: dict[tuple[str, int], int] = {}
    for root in log_dirs:
        path = root / HIGH_WATERMARK_FILE
        try:
            lines = path.read_text("ascii").splitlines()
        except FileNotFoundError:
            continue
        try:
            for line in lines[2:]:
                topic, index, offset = line.split()
                found[topic, int(index)] = int(offset)
        except ValueError as error:
            raise LogError(
                f"{path} is not a checkpoint of high watermarks ({error}): delete it, the leaders "
                "determine them again"
            ) from error
    return found


def write_high_watermarks(
    log_dirs: Iterable[Path], marks: Mapping[Path, Sequence[tuple[str, int, int]]]
) -> None:
    """Replace the files whose content changed."""
    for root in log_dirs:
        entries = sorted(marks.get(root, ()))
        lines = ["0", str(len(entries)), *(f"{t} {i} {offset}" for t, i, offset in entries)]
        content = ("\n".join(lines) + "\n").encode("ascii")
        path = root / HIGH_WATERMARK_FILE
        if not path.exists() or path.read_bytes() != content:
            Disk().replace_file(path, content)


def take_clean_shutdown(log_dirs: Sequence[Path]) -> int:
    """Return the broker epoch of the previous process, -1 if it did not stop cleanly.

    The files are durably removed, so that they cannot describe this process.
    """
    epochs = [_read_clean_shutdown(root / CLEAN_SHUTDOWN_FILE) for root in log_dirs]
    disk = Disk()
    for root in log_dirs:
        if (root / CLEAN_SHUTDOWN_FILE).exists():
            disk.unlink(root / CLEAN_SHUTDOWN_FILE)
            disk.sync_directory(root)
    return epochs[0] if len(set(epochs)) == 1 else NO_EPOCH


def _read_clean_shutdown(path: Path) -> int:
    try:
        return int(json.loads(path.read_text())["brokerEpoch"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return NO_EPOCH


def write_clean_shutdown(log_dirs: Sequence[Path], broker_epoch: int) -> None:
    """Write the clean shutdown files, after all logs have been flushed and closed."""
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}).encode("ascii")
    for root in log_dirs:
        Disk().replace_file(root / CLEAN_SHUTDOWN_FILE, content)
