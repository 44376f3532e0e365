"""`required-end`: the log end that a replica must reach again before it votes as others do.

Written by recovery before it drops batches that may have been acknowledged, and removed when the
log has reached that end. No such file is the normal state. JSON with a version:
`{"version":1,"epoch":3,"endOffset":120,"mayStand":true}`.
"""

from __future__ import annotations

import json
from pathlib import Path

from quorate.log.disk import Disk
from quorate.log.errors import RequiredEndError, write_failure
from quorate.log.json_file import Fields, integer_field, read_json_file
from quorate.raft.types import OffsetAndEpoch, RequiredEnd

REQUIRED_END_FILE = "required-end"
VERSION = 1


class RequiredEndFile:
    """The file in `directory`, which is the partition's (`__cluster_metadata-0`)."""

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        self.path = directory / REQUIRED_END_FILE
        self._disk = disk or Disk()

    def read(self) -> RequiredEnd | None:
        """None when nothing is required. RequiredEndError when it cannot be understood."""
        return read_json_file(
            self.path,
            _parse,
            RequiredEndError,
            "so this replica does not know which log end it must reach again. Do not delete the "
            "file: remove the replica from the quorum (metadata-quorum remove-controller), format "
            "an empty directory and add it again",
        )

    def write(self, required_end: RequiredEnd | None) -> None:
        """Replace the file, or remove it (None); durable on return.

        LogFailedError (DiskFullError) when it may not be durable.
        """
        try:
            if required_end is not None:
                self._disk.replace_file(self.path, format_required_end(required_end))
            elif self.path.exists():
                self._disk.unlink(self.path)
                self._disk.sync_directory(self.path.parent)
        except OSError as error:
            raise write_failure(self.path, error) from error


def format_required_end(required_end: RequiredEnd) -> bytes:
    fields = {
        "version": VERSION,
        "epoch": required_end.end.epoch,
        "endOffset": required_end.end.offset,
        "mayStand": required_end.may_stand,
    }
    return json.dumps(fields, separators=(",", ":")).encode("ascii")


def later_required_end(first: RequiredEnd | None, second: RequiredEnd | None) -> RequiredEnd | None:
    """Combine two requirements: the later end; a replica may stand only if both allow it."""
    if first is None or second is None:
        return first or second
    end = max(first.end, second.end, key=lambda end: (end.epoch, end.offset))
    return RequiredEnd(end, first.may_stand and second.may_stand)


def _parse(fields: Fields) -> RequiredEnd:
    version = integer_field(fields, "version")
    if version != VERSION:
        raise ValueError(f"version {version} is not {VERSION}")
    may_stand = fields["mayStand"]
    if not isinstance(may_stand, bool):
        raise TypeError(f"mayStand is {may_stand!r}")
    end = OffsetAndEpoch(integer_field(fields, "endOffset"), integer_field(fields, "epoch"))
    return RequiredEnd(end, may_stand)
