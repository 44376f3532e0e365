"""The data source `quorate`: a metadata log as a table, read as a batch or as a stream.

    spark.dataSource.register(QuorateSource)
    spark.read.format("quorate").load("/var/lib/quorate")
    spark.readStream.format("quorate").option("bootstrap", "host:9093").load()

Rules:
1. Readers and partitions are picklable, so they hold no open files or channels. Spark's workers
   open theirs in `read`.
2. Rows are Arrow record batches, one per chunk of a few MiB. Memory does not grow with the log.
3. A stream's offsets are the log's. A range always yields the same rows, because committed records
   never change. Reads from a running quorum stop at the high watermark, and those from several
   directories of a cluster at the derived committed offset (`committed`). A stream of these reads
   the first of the directories; the others only tell what is committed.
4. Reading offsets that a snapshot has replaced raises `CompactedError`, and files that lack
   offsets, or hold them twice or out of order, raise `DataLossError` (`coverage`), unless
   failOnDataLoss=false.
5. The directory of a running node is listed for each of Spark's jobs, so two jobs over a DataFrame
   may see different logs. Persist the DataFrame to read the log once.

See `options` for the options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from pyarrow import RecordBatch
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from quorate.log.scan import find_batch, may_follow
from quorate.spark.decoding import framing
from quorate.spark.decoding.columns import ChunkOrigin, rows
from quorate.spark.decoding.framing import INCOMPLETE, Chunk
from quorate.spark.errors import (
    DamagedError,
    FileGoneError,
    NotALogError,
    OptionError,
    UnknownCommitError,
    lost,
)
from quorate.spark.files import LogReplica, SnapshotFile, cut, end_offset, opened, size_of
from quorate.spark.options import ALL, NEWEST, NONE, OFFSET_MAX, SourceOptions
from quorate.spark.source.committed import LogLimit, log_limits
from quorate.spark.source.coverage import Coverage
from quorate.spark.source.filters import WantedRows

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    HAS_ADMISSION_CONTROL = True
except ImportError:  # before PySpark 4.2
    HAS_ADMISSION_CONTROL = False
    ReadLimit = Any  # type: ignore[misc,assignment]

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """A placeholder for PySpark before 4.2, which lacks this class."""


T = TypeVar("T")

PLANS_MAX = 3
"""How often a read is planned anew because a running node deleted files meanwhile."""


@dataclass
class FilePart(InputPartition):
    """A byte range of a file, and the offsets [from_offset, to_offset) to read from it.

    first_offset: the offset that it must begin with; next_offset: the one that must follow it, None
    if unknown. last: whether it ends the log, and so may end in a torn batch, or in zeros.
    """

    origin: ChunkOrigin
    start: int
    end: int
    from_offset: int
    to_offset: int
    first_offset: int = 0
    next_offset: int | None = None
    last: bool = False

    @property
    def may_have_rows(self) -> bool:
        """Whether its offsets overlap those to read, or are out of order.

        The offset after a file's last piece is only known once it is read.
        """
        if self.next_offset is None:
            return self.first_offset < self.to_offset
        if self.next_offset < self.first_offset:
            return True
        return self.first_offset < self.to_offset and self.next_offset > self.from_offset

    @property
    def is_followed_inside(self) -> bool:
        """Whether the next part begins with an offset that is to be read."""
        return self.next_offset is not None and self.next_offset < self.to_offset

    def coverage(self) -> Coverage:
        """A new check of the part's offsets."""
        return Coverage(
            self.origin.file,
            self.from_offset,
            self.to_offset,
            self.first_offset,
            self.start,
            is_snapshot=self.origin.snapshot is not None,
        )


def is_of_snapshot(part: InputPartition) -> bool:
    """Whether a partition is a snapshot or a part of one."""
    if isinstance(part, FilePart):
        return part.origin.snapshot is not None
    return isinstance(part, LiveSnapshot)


@dataclass
class LivePart(InputPartition):
    """An offset range of a running quorum's log."""

    from_offset: int
    to_offset: int


@dataclass
class LiveSnapshot(InputPartition):
    """A running quorum's newest snapshot. to_offset: the end of the read, which is not checked."""

    to_offset: int


def read_part(options: SourceOptions, part: InputPartition) -> Iterator[RecordBatch]:
    """Yield a partition's rows. Runs in a worker."""
    none = True
    for (batch,) in read_layers(options, part, (options.layer,)):
        if batch.num_rows:
            none = False
            yield batch
    if none:
        # Spark 4.2 accepts an empty iterator; earlier versions require a first element.
        yield RecordBatch.from_pylist([], schema=options.schema)


def read_layers(
    options: SourceOptions, part: InputPartition, layers: Sequence[str]
) -> Iterator[list[RecordBatch]]:
    """Read a partition once, and yield its rows in several layers."""
    if isinstance(part, FilePart):
        return _read_file(options, part, layers)
    if isinstance(part, LivePart):
        return _read_live(options, part, layers)
    return _read_live_snapshot(options, layers)


def _read_file(
    options: SourceOptions, part: FilePart, layers: Sequence[str]
) -> Iterator[list[RecordBatch]]:
    origin, offsets = part.origin, (part.from_offset, part.to_offset)
    coverage = part.coverage() if options.fail_on_loss else None
    expected = part.first_offset
    with opened(origin.file) as (descriptor, _):
        for chunk in framing.read_chunks(
            descriptor, part.start, part.end, may_be_unwritten=part.last
        ):
            found = _layers(options, layers, chunk, origin, offsets)
            if coverage is not None:
                coverage.check(chunk)
            yield found
            if len(chunk.starts):
                expected = int(chunk.last_offsets[-1]) + 1
            if coverage is not None and coverage.is_complete and not part.is_followed_inside:
                return
            if chunk.fault is not None:
                may_end = part.last or not options.fail_on_loss
                _check_fault(part, chunk, expected, descriptor, may_end=may_end)
    if coverage is not None:
        coverage.finish(part.next_offset)


def _layers(
    options: SourceOptions,
    layers: Sequence[str],
    chunk: Chunk,
    origin: ChunkOrigin,
    offsets: tuple[int, int],
) -> list[RecordBatch]:
    return [rows(layer, chunk, origin, *offsets, verify=options.verify) for layer in layers]


def _check_fault(
    part: FilePart, chunk: Chunk, expected: int, descriptor: int, *, may_end: bool
) -> None:
    """Raise DamagedError for a fault, unless the data may end there and no batch follows.

    expected: the next offset.
    """
    assert chunk.fault is not None
    position = chunk.file_position + chunk.size
    fault = chunk.fault
    if may_end and fault.startswith(INCOMPLETE):
        fits = may_follow(expected, part.end - position)
        found = find_batch(descriptor, position + 1, part.end, fits)
        if found is None:
            return
        fault += f", but a whole batch follows at byte {found}"
    raise DamagedError(
        f"{part.origin.file} is damaged at byte {position}, where offset {expected} is expected: "
        f"{fault}"
    )


def _read_live(
    options: SourceOptions, part: LivePart, layers: Sequence[str]
) -> Iterator[list[RecordBatch]]:
    assert options.quorum is not None
    name = ",".join(options.quorum.addresses)
    origin = ChunkOrigin("leader", name, committed_end=part.to_offset)
    with options.live_reader() as reader:
        for data in reader.batches(
            part.from_offset, part.to_offset, fail_on_loss=options.fail_on_loss
        ):
            chunk = framing.whole(data)
            yield _layers(options, layers, chunk, origin, (part.from_offset, part.to_offset))


def _read_live_snapshot(
    options: SourceOptions, layers: Sequence[str]
) -> Iterator[list[RecordBatch]]:
    assert options.quorum is not None
    with options.live_reader() as reader:
        offset, pieces = reader.snapshot()
    origin = ChunkOrigin("leader", ",".join(options.quorum.addresses), offset)
    for data in pieces:
        yield _layers(options, layers, framing.whole(data), origin, (0, OFFSET_MAX))


def file_parts(
    options: SourceOptions,
    replica: LogReplica,
    start: int,
    end: int,
    *,
    committed_end: int = 0,
    has_end: bool = False,
) -> Iterator[FilePart]:
    """Yield the pieces of a replica's segments that can hold offsets in [start, end).

    committed_end: see `ChunkOrigin`. has_end: whether the log is known to reach `end`.
    """
    for segment, after in replica.segments_between(start, end):
        origin = ChunkOrigin(
            replica.name,
            str(segment.path),
            committed_end=committed_end,
            cluster=replica.cluster_id if options.of_clusters else None,
        )
        following = end if after is None and has_end else after
        for piece in cut(segment.path, options.piece_bytes):
            is_end = piece.next_offset is None
            part = FilePart(
                origin,
                piece.start,
                piece.end,
                start,
                end,
                piece.first_offset if piece.start else segment.base_offset,
                following if is_end else piece.next_offset,
                last=is_end and after is None,
            )
            if part.may_have_rows:
                yield part


def snapshot_parts(options: SourceOptions, replica: LogReplica, end: int) -> list[FilePart]:
    """The selected checkpoints that end by `end`, one part each.

    A checkpoint is only as large as the state.
    """
    cluster = replica.cluster_id if options.of_clusters else None
    return [
        FilePart(
            ChunkOrigin(replica.name, str(snapshot.path), snapshot.id.offset, cluster=cluster),
            0,
            size_of(snapshot.path),
            0,
            OFFSET_MAX,
        )
        for snapshot in chosen_snapshots(replica, options.snapshots, end)
    ]


def chosen_snapshots(replica: LogReplica, which: str, end: int) -> tuple[SnapshotFile, ...]:
    """The selected checkpoints of those that end by `end`."""
    found = tuple(s for s in replica.snapshots if s.id.offset <= end)
    if which == NONE:
        return ()
    if which == ALL:
        return found
    if which == NEWEST:
        return found[-1:]
    return tuple(s for s in found if s.id.offset <= int(which))[-1:]


class QuorateReader(DataSourceReader):
    """A batch read of the log. wanted: what filters leave of it."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self.wanted = WantedRows()

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        if options.quorum is not None:
            return self._live()
        return _planned(self._files)

    def _files(self) -> list[InputPartition]:
        options = self._options
        found: list[InputPartition] = []
        replicas = options.replicas()
        for replica, limit in zip(replicas, _limits(options, replicas), strict=True):
            start = replica.start_offset
            if options.start is not None:
                if 0 <= options.start < start and replica.segments and options.fail_on_loss:
                    raise lost(options.start, start)
                start = options.start
            if self.wanted.snapshots:
                found += snapshot_parts(options, replica, limit.end)
            start = max(start, self.wanted.start)
            end = min(options.end_or_max, limit.end, self.wanted.end)
            found += file_parts(options, replica, start, end, committed_end=limit.committed_end)
        return found

    def _live(self) -> list[InputPartition]:
        options = self._options
        with options.live_reader() as reader:
            extent = reader.extent()
        start = extent.start if options.start is None else options.start
        if start < extent.start:
            if options.fail_on_loss:
                raise lost(start, extent.start)
            start = extent.start
        end = min(extent.end, options.end_or_max)
        is_wanted = options.snapshots == NEWEST and self.wanted.snapshots
        snapshots = [LiveSnapshot(end)] if is_wanted else []
        start, end = max(start, self.wanted.start), min(end, self.wanted.end)
        return [*snapshots, *ranges(start, end, options.records_per_partition)]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        return read_part(self._options, partition)


class FilteringReader(QuorateReader):
    """A batch read that skips offsets which no row of the result has.

    Spark rejects such a reader unless spark.sql.python.filterPushdown.enabled is true.
    """

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802
        """Narrow what is read. Spark applies all filters to the rows, too."""
        for each in filters:
            self.wanted.narrow(each)
        return filters


def _planned(plan: Callable[[], T]) -> T:
    """Plan a read. Plans anew while a running node deletes files. Raises FileGoneError."""
    for _ in range(PLANS_MAX - 1):
        with suppress(FileGoneError):
            return plan()
    return plan()


def _is_one_log(replicas: Sequence[LogReplica]) -> bool:
    clusters = {None if r.properties is None else r.properties.cluster_id for r in replicas}
    return len(replicas) == 1 or (len(clusters) == 1 and None not in clusters)


def _limits(options: SourceOptions, replicas: Sequence[LogReplica]) -> list[LogLimit]:
    """Where to stop reading each log. Raises UnknownCommitError, and OptionError."""
    if not options.of_clusters:
        return log_limits(replicas, options.high_watermark)
    ids = [replica.cluster_id for replica in replicas]
    if None in ids or len(set(ids)) < len(ids):
        raise OptionError(
            "clusters=true needs one log of each cluster, with its meta.properties: "
            + ", ".join(f"{each.directory} ({each.cluster_id})" for each in replicas)
        )
    ends = options.high_watermarks or [options.high_watermark] * len(replicas)
    if len(ends) != len(replicas):
        raise OptionError(f"highWatermark has {len(ends)} offsets, but {len(replicas)} logs exist")
    return [log_limits([replica], end)[0] for replica, end in zip(replicas, ends, strict=True)]


def ranges(start: int, end: int, size: int) -> list[LivePart]:
    return [LivePart(first, min(first + size, end)) for first in range(start, end, size)]


class QuorateStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read. Its offsets are {"offset": N}: all records before N have been read."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._target: int | None = None
        if options.quorum is None and not _is_one_log(options.replicas()):
            raise OptionError(
                "a stream follows one log: specify directories of one cluster, or bootstrap"
            )
        if options.of_clusters:
            raise OptionError("a stream follows one log: clusters=true is for spark.read")
        if options.snapshots != NONE:
            raise OptionError("a stream has no snapshots: read them with spark.read")

    def _extent(self) -> tuple[int, int]:
        options = self._options
        if options.quorum is None:
            return _planned(self._file_extent)
        with options.live_reader() as reader:
            extent = reader.extent()
        return extent.start, extent.end

    def _file_extent(self) -> tuple[int, int]:
        replicas = self._options.replicas()
        limit = log_limits(replicas, self._options.high_watermark)[0]
        return replicas[0].start_offset, min(end_offset(replicas[0]), limit.end)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 (Spark's name)
        wanted = self._options.start
        if wanted is not None and wanted >= 0:
            return {"offset": wanted}
        start, end = self._extent()
        return {"offset": start if wanted is None else end}

    def latestOffset(  # noqa: N802
        self, start: dict[str, int] | None = None, limit: Any = None
    ) -> dict[str, int]:
        try:
            first, end = self._extent()
        except UnknownCommitError:
            if start is None or self._target is not None:
                raise
            return start  # during an election: a later trigger knows more
        if start is not None and start["offset"] < first and self._options.fail_on_loss:
            raise lost(start["offset"], first)
        latest = min(end, self._options.end_or_max)
        if self._target is not None:
            latest = min(latest, self._target)
        if start is None:
            return {"offset": latest}
        if HAS_ADMISSION_CONTROL and isinstance(limit, ReadMaxRows):
            latest = min(latest, max(start["offset"], first) + limit.max_rows)
        # Never move backwards: the log directory may end before what the query has already read.
        return {"offset": max(latest, start["offset"])}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self._options.records_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = min(self._extent()[1], self._options.end_or_max)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        options = self._options
        begin, stop = start["offset"], end["offset"]
        if begin >= stop:
            return []
        if options.quorum is not None:
            return ranges(begin, stop, options.records_per_partition)
        return _planned(lambda: self._files(begin, stop))

    def _files(self, begin: int, stop: int) -> list[FilePart]:
        options = self._options
        replicas = options.replicas()
        replica = replicas[0]
        if begin < replica.start_offset and options.fail_on_loss:
            raise lost(begin, replica.start_offset)
        if not replica.segments:
            raise NotALogError(f"{replica.partition} no longer has any segments")
        # Of several directories, only committed offsets are announced.
        certain = stop
        if len(replicas) == 1:
            certain = log_limits(replicas, options.high_watermark)[0].committed_end
        return list(file_parts(options, replica, begin, stop, committed_end=certain, has_end=True))

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        return read_part(self._options, partition)


class QuorateSource(DataSource):
    """The data source behind `format("quorate")`."""

    @classmethod
    def name(cls) -> str:
        return "quorate"

    def _parsed(self) -> SourceOptions:
        return SourceOptions.of(dict(self.options))

    def schema(self) -> StructType:
        return from_arrow_schema(self._parsed().schema)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        options = self._parsed()
        return FilteringReader(options) if options.push_filters else QuorateReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        return QuorateStreamReader(self._parsed())
