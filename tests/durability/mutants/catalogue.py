"""Every mutant of the log: one guard of durability is gone."""

# ruff: noqa: E501 - the changes quote lines of the log with their indentation
from __future__ import annotations

from tests.durability.mutants.patching import Mutant
from tests.simulation.mutants.mutant import Change, Redundant

POWER = "power"
SECTORS = "sectors"


def _power(name: str, rule: str, *changes: Change) -> Mutant:
    return Mutant(name, rule, changes, POWER)


def _sectors(name: str, rule: str, *changes: Change) -> Mutant:
    return Mutant(name, rule, changes, SECTORS)


_QUORUM_STATE_WRITE = """            self._disk.write_all(descriptor, [content], 0)
            self._disk.truncate(descriptor, len(content))
            self._disk.sync(descriptor)
"""
_RESERVE_NAME = """        self._disk.rename(self._reserve, self.path)
        self._disk.sync_directory(self.path.parent)
"""

SYNCS = (
    _power(
        "commit_is_not_synced",
        "a group is synced before it is reported",
        ("writer", "        self._disk.sync_data(segment.descriptor)\n", "        pass\n"),
    ),
    _power(
        "reported_before_the_sync",
        "the report comes after the sync",
        (
            "writer",
            "        self._sync(segment)\n        self._mark_durable(group[-1].end_offset)\n",
            "        self._on_durable(group[-1].ticket)\n        self._sync(segment)\n        self._mark_durable(group[-1].end_offset)\n",
        ),
    ),
    _power(
        "quorum_state_is_not_synced",
        "quorum-state is synced before it gets its name",
        (
            "quorum_state",
            _QUORUM_STATE_WRITE,
            _QUORUM_STATE_WRITE.replace("self._disk.sync(descriptor)", "pass"),
        ),
    ),
    _power(
        "quorum_state_name_is_not_synced",
        "the directory is synced before quorum-state counts as written",
        ("quorum_state", _RESERVE_NAME, "        self._disk.rename(self._reserve, self.path)\n"),
    ),
    _power(
        "quorum_state_in_place",
        "quorum-state is replaced as a whole",
        (
            "quorum_state",
            "descriptor = os.open(self._reserve, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)\n",
            "descriptor = os.open(self.path if self.path.exists() else self._reserve, os.O_WRONLY)\n",
        ),
    ),
    _power(
        "quorum_state_reserve_is_the_file",
        "the reserve is never the file itself",
        (
            "quorum_state",
            "stat.S_ISREG(found.st_mode) and found.st_nlink == 1\n",
            "stat.S_ISREG(found.st_mode)\n",
        ),
    ),
    _power(
        "truncation_is_not_synced",
        "a truncation is durable before what follows",
        (
            "segments",
            "        self.disk.truncate(active.descriptor, size)\n        self.disk.sync(active.descriptor)\n",
            "        self.disk.truncate(active.descriptor, size)\n",
        ),
    ),
    _power(
        "unlink_is_not_synced",
        "a segment that goes is gone before the one before it changes",
        (
            "segments",
            "        self.disk.unlink(segment.path.with_suffix(PRODUCER_SNAPSHOT_SUFFIX))\n        self.disk.sync_directory(self.directory)\n",
            "        self.disk.unlink(segment.path.with_suffix(PRODUCER_SNAPSHOT_SUFFIX))\n",
        ),
        (
            "segments",
            "        self._drop_producer_snapshots(end_offset)\n        self.disk.sync_directory(self.directory)\n",
            "        self._drop_producer_snapshots(end_offset)\n",
        ),
    ),
    _power(
        "new_segment_name_is_not_synced",
        "a new segment has a durable name",
        (
            "segments",
            "            self.disk.sync(segment.descriptor)\n            self.disk.sync_directory(self.directory)\n",
            "            self.disk.sync(segment.descriptor)\n",
        ),
    ),
    _power(
        "full_segment_is_not_synced",
        "a full segment is synced before a newer one exists",
        (
            "writer",
            "        self._segments.trim(segment)\n        self._mark_durable(base_offset)\n",
            "        self._mark_durable(base_offset)\n",
        ),
    ),
    _power(
        "full_segments_are_never_synced",
        "a full segment is synced before a newer one exists, and again at a restart",
        (
            "writer",
            "        self._segments.trim(segment)\n        self._mark_durable(base_offset)\n",
            "        self._mark_durable(base_offset)\n",
        ),
        (
            "segments",
            "            if following is not None:\n                self.disk.sync(segment.descriptor)\n",
            "",
        ),
    ),
    _power(
        "trim_is_not_synced",
        "what is given back is synced with what stays",
        (
            "segments",
            "            segment.allocated = segment.size\n        self.disk.sync(segment.descriptor)\n",
            "            segment.allocated = segment.size\n",
        ),
    ),
    _power(
        "checkpoint_is_not_synced",
        "a checkpoint is synced before it gets its name",
        (
            "snapshots",
            "            self.disk.write_all(descriptor, pending, position)\n            self.disk.sync(descriptor)\n",
            "            self.disk.write_all(descriptor, pending, position)\n",
        ),
    ),
    _power(
        "checkpoint_name_is_not_synced",
        "a checkpoint's name is durable before the log goes",
        (
            "snapshots",
            "        self.disk.rename(part, self.path(snapshot))\n        self.disk.sync_directory(self.directory)\n",
            "        self.disk.rename(part, self.path(snapshot))\n",
        ),
    ),
    _power(
        "received_checkpoint_is_not_synced",
        "a received checkpoint is synced before it gets its name",
        ("install", "            self._store.disk.sync(self._descriptor)\n", "            pass\n"),
    ),
    _power(
        "replaced_file_is_not_synced",
        "a file that replaces another is synced first",
        (
            "disk",
            "            self.write_all(descriptor, [content], 0)\n            self.sync(descriptor)\n",
            "            self.write_all(descriptor, [content], 0)\n",
        ),
    ),
    _power(
        "failed_received_checkpoint_is_kept",
        "a received checkpoint whose sync failed is received again",
        (
            "install",
            "            self._path.unlink(missing_ok=True)\n            raise write_failure",
            "            raise write_failure",
        ),
    ),
)

RECOVERY_POINT = (
    _power(
        "recovery_point_before_the_sync",
        "the recovery point is never ahead of what is synced",
        (
            "writer",
            "        self._sync(segment)\n        self._mark_durable(group[-1].end_offset)\n",
            "        self._mark_durable(group[-1].end_offset)\n        self._recovery_point.sync()\n        self._sync(segment)\n",
        ),
    ),
    _power(
        "lowered_point_is_not_synced",
        "a lower recovery point is durable before bytes go",
        (
            "recovery_point",
            "                self._write(offset)\n                self._sync()\n",
            "                self._write(offset)\n",
        ),
    ),
    _power(
        "point_is_not_lowered",
        "a truncation lowers the recovery point",
        ("writer", "                self._lower_recovery_point(operation.end_offset)\n", ""),
    ),
    _power(
        "point_is_lowered_after_the_truncation",
        "the recovery point is lowered first",
        (
            "writer",
            "                self._lower_recovery_point(operation.end_offset)\n                self._segments.truncate(operation.end_offset)\n",
            "                self._segments.truncate(operation.end_offset)\n                self._lower_recovery_point(operation.end_offset)\n",
        ),
    ),
    _sectors(
        "point_is_not_written",
        "the recovery point follows every sync",
        (
            "writer",
            "            self.durable_end = offset\n            self._recovery_point.advance(offset)\n",
            "            self.durable_end = offset\n",
        ),
    ),
    _sectors(
        "point_is_not_read",
        "a fault below the recovery point is damage",
        ("recovery", "    if expected < recovery_point:\n", "    if expected < 0:\n"),
        (
            "recovery",
            "    if known_end < recovery_point or is_gone:\n",
            "    if is_gone:\n",
        ),
    ),
    _sectors(
        "point_allows_missing_records",
        "a log that ends before the recovery point is refused",
        (
            "recovery",
            "    if known_end < recovery_point or is_gone:\n",
            "    if is_gone:\n",
        ),
    ),
    _sectors(
        "point_is_written_at_the_end_only",
        "the recovery point is kept while the log is open",
        (
            "recovery_point",
            "            if offset != self.offset:\n                self._write(offset)\n",
            "            self.offset = offset\n",
        ),
    ),
)

RESTART = (
    _power(
        "restart_does_not_rewrite",
        "what lies behind the recovery point is written again",
        ("recovery", "    segments.rewrite(recovery_point)\n", ""),
    ),
    _power(
        "restart_does_not_sync",
        "what is found at a restart is synced",
        (
            "recovery",
            "    segments.rewrite(recovery_point)\n    segments.trim(active)\n",
            "    if active.allocated > active.size:\n        segments.trim(active)\n",
        ),
    ),
    _power(
        "restart_rewrites_the_end_only",
        "the rewriting begins at the recovery point",
        (
            "recovery",
            "    segments.rewrite(recovery_point)\n",
            "    segments.rewrite(segments.active.base_offset + 10**9)\n",
        ),
    ),
    _power(
        "restart_does_not_sync_names",
        "names that a killed process left are made durable",
        (
            "recovery",
            "    disk.sync_directory(segments.directory)\n    disk.sync_directory(directory)\n",
            "",
        ),
    ),
    _power(
        "restart_keeps_the_tail",
        "the tail is dropped durably",
        (
            "recovery",
            "    segments.rewrite(recovery_point)\n    segments.trim(active)\n",
            "    segments.rewrite(recovery_point)\n",
        ),
    ),
)

TAIL = (
    _sectors(
        "all_faults_are_torn",
        "a batch without a lost sector is damage",
        (
            "tail",
            "            if not _is_torn(descriptor, position, end, data_end, offsets):\n",
            "            if False:\n",
        ),
    ),
    _sectors(
        "any_gap_is_ambiguous",
        "a gap without a lost sector is damage",
        (
            "tail",
            "        if follows > position and not _has_lost_sector(descriptor, position, follows, offsets):\n",
            "        if False:\n",
        ),
    ),
    _sectors(
        "no_required_end",
        "what is ambiguous sets a required end",
        ("recovery", "    if tail.dropped_end is None:\n", "    if True:\n"),
    ),
    _sectors(
        "required_end_of_the_first_batch",
        "the required end is the last sound batch's",
        (
            "tail",
            "                self.epoch = header.epoch\n",
            "                self.epoch = header.epoch\n                tail.dropped_end = tail.dropped_end or OffsetAndEpoch(self.offsets.high, self.epoch)\n",
        ),
        (
            "tail",
            "            tail.dropped_end = OffsetAndEpoch(self.offsets.high, self.epoch)\n",
            "            pass\n",
        ),
    ),
    _sectors(
        "required_end_of_the_first_run",
        "the search goes on behind the next gap",
        ("tail", "        offsets, epoch = run.offsets, run.epoch\n", "        break\n"),
    ),
    _sectors(
        "life_behind_a_gap_is_not_searched",
        "sound batches behind a gap make it ambiguous",
        (
            "tail",
            "        follows = find_batch(descriptor, position, end, _fits_after(position, offsets))\n",
            "        follows = None\n",
        ),
    ),
    _power(
        "whole_sectors_only",
        "a piece of a sector counts",
        (
            "tail",
            "        if not is_start and read_range(descriptor, position, size) == _ZERO_SECTOR[:size]:\n",
            "        if size == SECTOR_BYTES and read_range(descriptor, position, size) == _ZERO_SECTOR:\n",
        ),
    ),
    _power(
        "short_pieces_do_not_count",
        "a piece that is shorter than a header counts",
        (
            "tail",
            "            if piece_end < end or size > _SOLVABLE_BYTES:\n",
            "            if size > HEADER_SIZE:\n",
        ),
    ),
    _power(
        "first_pieces_do_not_count",
        "the lost beginning of a batch counts",
        (
            "tail",
            "    if not 0 < size < _NEVER_ZERO_BYTES or not offsets.may_begin_with(size):\n",
            "    if True:\n",
        ),
    ),
    _power(
        "lost_offsets_are_misplaced",
        "an offset that was lost is no misplaced batch",
        (
            "recovery",
            "            if lacks_first_bytes(position, header, found.end_offset):\n",
            "            if False:\n",
        ),
    ),
    _power(
        "half_headers_are_damage",
        "a header that was not written to its end is torn",
        (
            "tail",
            "        return is_short or _has_lost_sector(",
            "        return _has_lost_sector(",
        ),
    ),
    _power(
        "short_files_are_damage",
        "a file that ends inside a batch is torn",
        (
            "tail",
            "    if claimed_end > end or claimed_end - data_end >= _MISSING_BYTES:\n        return True\n",
            "",
        ),
    ),
    _power(
        "ambiguous_is_damage",
        "a lost sector before sound batches is no damage",
        (
            "tail",
            "        if follows > position and not _has_lost_sector(descriptor, position, follows, offsets):\n",
            "        if True:\n",
        ),
    ),
    _power(
        "required_end_is_forgotten",
        "a required end is read again",
        (
            "recovery",
            "    required_end = RequiredEndFile(segments.directory, disk).read()\n",
            "    required_end = None\n",
        ),
    ),
    _power(
        "required_end_is_not_durable",
        "a required end is durable before anything is dropped",
        (
            "required_end",
            "                self._disk.replace_file(self.path, format_required_end(required_end))\n",
            "                self.path.write_bytes(format_required_end(required_end))\n",
        ),
    ),
    _power(
        "required_end_is_lowered",
        "a later loss does not lower the required end",
        (
            "required_end",
            "    end = max(first.end, second.end, key=lambda end: (end.epoch, end.offset))\n",
            "    end = min(first.end, second.end, key=lambda end: (end.epoch, end.offset))\n",
        ),
    ),
)

ORDER = (
    _power(
        "cleaning_newest_first",
        "cleaning deletes the oldest segment first",
        (
            "segments",
            "            segment = self.segments.pop(0)\n",
            "            segment = self.segments.pop(1)\n",
        ),
    ),
    _power(
        "cleaning_ignores_the_active",
        "the active segment stays",
        (
            "segments",
            "            if len(self.segments) < 2 or self.segments[1].base_offset > offset:\n",
            "            if self.segments[-1].base_offset > offset:\n",
        ),
    ),
    _power(
        "truncation_pops_the_last",
        "a truncation keeps one segment",
        (
            "segments",
            "            if len(self.segments) < 2 or self.active.base_offset < end_offset:\n",
            "            if self.active.base_offset < end_offset:\n",
        ),
    ),
    _power(
        "reset_before_the_checkpoint",
        "a received checkpoint is durable before the log goes",
        (
            "install",
            "        self.adopt()\n        self.replace(ticket)\n",
            "        self.replace(ticket)\n        self.adopt()\n",
        ),
    ),
    _power(
        "reset_oldest_first",
        "a reset deletes the newest segment first",
        (
            "segments",
            "                segment = self.segments.pop()\n                segment.close()\n                self._unlink(segment)\n",
            "                segment = self.segments.pop(0)\n                segment.close()\n                self._unlink(segment)\n",
        ),
    ),
    _power(
        "failure_is_survived",
        "nothing is reported after a failed sync",
        (
            "writer",
            "        except OSError as error:\n            self._fail(write_failure(self._segments.directory, error))\n",
            "        except OSError:\n            self._on_durable(self._taken[-1].ticket or 0)\n",
        ),
    ),
)

FILES = (
    _sectors(
        "lost_votes_are_not_noticed",
        "records without the votes of their epoch are refused",
        (
            "quorum_state",
            "        if last_epoch < 1 or (state is not None and state.epoch >= last_epoch):\n",
            "        if True:\n",
        ),
    ),
    _sectors(
        "older_votes_are_not_noticed",
        "quorum-state is not older than the log",
        (
            "quorum_state",
            "        if last_epoch < 1 or (state is not None and state.epoch >= last_epoch):\n",
            "        if last_epoch < 1 or state is not None:\n",
        ),
    ),
    _sectors(
        "missing_partition_is_a_new_one",
        "a partition directory that is gone is refused",
        (
            "metadata_log",
            "        if recovery_point is not None and not partition_directory(directory).exists():\n",
            "        if False:\n",
        ),
        (
            "recovery",
            "    if known_end < recovery_point or is_gone:\n",
            "    if False:\n",
        ),
    ),
    _sectors(
        "missing_segments_are_a_new_log",
        "a log without segments is refused where a recovery point stands",
        (
            "metadata_log",
            "        if recovery_point is not None and not partition_directory(directory).exists():\n",
            "        if recovery_point and not partition_directory(directory).exists():\n",
        ),
        (
            "recovery",
            "    if known_end < recovery_point or is_gone:\n",
            "    if known_end < recovery_point:\n",
        ),
    ),
    _power(
        "point_is_not_written_again",
        "the recovery point of a killed process or after a failed sync is written again",
        (
            "recovery_point",
            "            disk.write_all(self._descriptor, [content], 0)\n            disk.sync(self._descriptor)\n",
            "            disk.sync(self._descriptor)\n",
        ),
    ),
    _power(
        "point_is_synced_at_the_end_only",
        "the recovery point is synced every second",
        (
            "writer",
            "        self._recovery_point.sync()\n        self._point_synced_s",
            "        self._point_synced_s",
        ),
    ),
    _power(
        "first_report_does_not_wait_for_the_point",
        "the recovery point is durable before the first report",
        (
            "writer",
            "        if self._point_synced_s < 0:\n            self._sync_recovery_point()\n",
            "        self._point_synced_s = max(self._point_synced_s, self._now_s())\n",
        ),
    ),
)

REDUNDANT = (
    Redundant(
        "at a restart, full segments behind the recovery point are synced again",
        "a full segment is synced before a newer one exists",
        "full_segments_are_never_synced",
    ),
    Redundant(
        "a partition directory that is gone is refused before a new one is made",
        "a log that ends before the recovery point, or has no segment, is refused",
        "missing_partition_is_a_new_one",
    ),
)
"""Guards without a row of their own: one alone changes nothing that anybody could see."""

MUTANTS = (*SYNCS, *RECOVERY_POINT, *RESTART, *TAIL, *ORDER, *FILES)
