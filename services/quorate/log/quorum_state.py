"""`quorum-state`: the epoch, the leader and the vote, durable before any answer depends on them.

Written in Kafka's JSON: data_version 1 with the voted directory (KIP-853), data_version 0 while
kraft.version is 0 (KIP-595). Both are read.

A full disk must not keep a replica from voting or stepping down, so a write needs no new space:

1. `quorum-state.tmp` always exists with its block allocated: write the new content there, sync it.
2. Keep the old file's block under a second name.
3. Rename the temporary file over `quorum-state`, sync the directory: this is the moment.
4. The old file under its second name becomes the next temporary file.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from quorate.common.identifiers import NO_NODE, ZERO_UUID, uuid_to_bytes
from quorate.log.disk import FILE_MODE, Disk
from quorate.log.errors import LostVotesError, QuorumStateError, write_failure
from quorate.log.json_file import Fields, integer_field, read_json_file
from quorate.raft.types import ElectionState, ReplicaKey

QUORUM_STATE_FILE = "quorum-state"
RESERVE_BYTES = 512
"""What the reserve holds before its first use; longer than any content."""

REMOVED_MARKER = "removed-voter"
"""A file beside it: a record took this replica out of the voters, and it does not join again by
itself. Who makes it a voter again takes the file away.
"""


class QuorumStateFile:
    """The file in `directory`, which is the partition's (`__cluster_metadata-0`)."""

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        self.path = directory / QUORUM_STATE_FILE
        self._reserve = directory / (QUORUM_STATE_FILE + ".tmp")
        self._spare = directory / (QUORUM_STATE_FILE + ".spare")
        self._disk = disk or Disk()

    def read(self) -> ElectionState | None:
        """None when nothing was ever written. QuorumStateError when it cannot be understood."""
        return read_json_file(
            self.path,
            _parse,
            QuorumStateError,
            "so this replica does not know how it voted. Do not delete the file: remove the "
            "replica from the quorum, format an empty directory and add it again",
        )

    def check(self, state: ElectionState | None, last_epoch: int) -> None:
        """LostVotesError when the log beside it is newer than `state`, which was read here.

        last_epoch: of the log's last record. A replica writes an epoch here before it appends
        anything of it, so an older or a missing file has lost votes. With an empty log it is normal
        that there is none.
        """
        if last_epoch < 1 or (state is not None and state.epoch >= last_epoch):
            return
        found = "is missing" if state is None else f"is of epoch {state.epoch}"
        raise LostVotesError(
            f"{self.path} {found}, but the log beside it holds records of epoch {last_epoch}: this "
            "replica lost its votes, and must not vote again under its directory id. Remove it "
            "from the quorum (metadata-quorum remove-controller), format an empty directory "
            "(storage format --no-initial-controllers) and add it again"
        )

    def write(self, state: ElectionState, kraft_version: int = 1) -> None:
        """Durable on return. LogFailedError (DiskFullError) when it may not be."""
        content = format_quorum_state(state, kraft_version)
        try:
            self._write(content)
        except OSError as error:
            raise write_failure(self.path, error) from error

    def reserve(self) -> None:
        """Take the room that later writes need. A vote is one of them: called before the first."""
        self._disk.unlink(self._spare)
        if self._has_own_reserve():
            return
        self._disk.unlink(self._reserve)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(self._reserve, flags, FILE_MODE)
        try:
            self._disk.write_all(descriptor, [b" " * RESERVE_BYTES], 0)
            self._disk.sync(descriptor)
        finally:
            os.close(descriptor)

    def _has_own_reserve(self) -> bool:
        """Whether a write to the reserve changes no other file: it is no link of either kind."""
        try:
            found = self._reserve.lstat()
        except FileNotFoundError:
            return False
        return stat.S_ISREG(found.st_mode) and found.st_nlink == 1

    def _write(self, content: bytes) -> None:
        self.reserve()
        descriptor = os.open(self._reserve, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            self._disk.write_all(descriptor, [content], 0)
            self._disk.truncate(descriptor, len(content))
            self._disk.sync(descriptor)
        finally:
            os.close(descriptor)
        has_old = self.path.exists()
        if has_old:
            os.link(self.path, self._spare)
        self._disk.rename(self._reserve, self.path)
        self._disk.sync_directory(self.path.parent)
        if has_old:
            self._disk.rename(self._spare, self._reserve)
        else:
            self.reserve()


def format_quorum_state(state: ElectionState, kraft_version: int) -> bytes:
    """Kafka's JSON, byte for byte."""
    leader = NO_NODE if state.leader_id is None else state.leader_id
    voted = NO_NODE if state.voted is None else state.voted.id
    fields: dict[str, Any]
    if kraft_version == 0:
        fields = {
            "clusterId": "",
            "leaderId": leader,
            "leaderEpoch": state.epoch,
            "votedId": voted,
            "appliedOffset": 0,
            "currentVoters": [],
            "data_version": 0,
        }
    else:
        directory = None if state.voted is None else state.voted.directory_id
        fields = {
            "leaderId": leader,
            "leaderEpoch": state.epoch,
            "votedId": voted,
            "votedDirectoryId": directory or ZERO_UUID,
            "data_version": 1,
        }
    return json.dumps(fields, separators=(",", ":")).encode("ascii")


def _parse(fields: Fields) -> ElectionState:
    version = integer_field(fields, "data_version")
    if version > 1:
        raise ValueError(f"data_version {version} is newer than 1")
    leader = integer_field(fields, "leaderId", NO_NODE)
    voted = integer_field(fields, "votedId", NO_NODE)
    directory: str | None = None
    if version == 1:
        text = fields["votedDirectoryId"]
        uuid_to_bytes(text)
        directory = None if text == ZERO_UUID else text
    return ElectionState(
        epoch=integer_field(fields, "leaderEpoch"),
        leader_id=None if leader == NO_NODE else leader,
        voted=None if voted == NO_NODE else ReplicaKey(voted, directory),
    )
