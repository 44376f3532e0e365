"""The options of the data source, parsed and validated.

    path, paths         directories of nodes (or of several), partition directories, files; or
    bootstrap           host:port,… of a running quorum
    tlsCa, tlsCertificate, tlsKey, timeoutSeconds   how to connect to it
    layer               ledger (default), batches, raw, or a record type such as PARTITION_RECORD
    startOffset         "earliest" (default), for streams also "latest", or an offset
    endOffset           "latest" (default) or an offset, exclusive
    highWatermark       "derived" (default) or an offset: files are read up to it, and the records
                        before it are known to be committed (see `committed`). With `clusters`,
                        also one for each path, separated by commas
    clusters            false (default), or true: each path has the log of another cluster, and rows
                        have a last column `cluster`. Not for streams
    snapshots           none (default), newest, all, or an offset (the newest that ends by it)
    failOnDataLoss      true (default): offsets that a snapshot replaced are an error, and so are
                        offsets that files lack, or have twice or out of order
    verifyChecksums     true (default)
    pushFilters         false (default), or true: conditions on offsets limit what is read. Spark's
                        setting spark.sql.python.filterPushdown.enabled must be true as well
    maxRecordsPerTrigger  the maximum size of a stream's micro-batch (PySpark 4.2 and later)
    recordsPerPartition, pieceBytes   the size of the parts that Spark reads in parallel

Spark passes options as strings. Their names are case-insensitive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.spark.decoding.columns import LAYERS, LEDGER, RAW, layer_schema
from quorate.spark.errors import OptionError
from quorate.spark.files import PIECE_BYTES, LogReplica, find_replicas

if TYPE_CHECKING:
    from pyarrow import Schema

    from quorate.rpc.client.batch_reader import BatchReader, QuorumConnection

EARLIEST, LATEST = "earliest", "latest"
DERIVED = "derived"
NONE, NEWEST, ALL = "none", "newest", "all"
RECORDS_PER_PARTITION = 500_000
OFFSET_MAX = (1 << 63) - 1

_NAMES = {
    name.lower(): name
    for name in (
        "path",
        "paths",
        "bootstrap",
        "tlsCa",
        "tlsCertificate",
        "tlsKey",
        "timeoutSeconds",
        "layer",
        "startOffset",
        "endOffset",
        "highWatermark",
        "snapshots",
        "failOnDataLoss",
        "verifyChecksums",
        "clusters",
        "pushFilters",
        "maxRecordsPerTrigger",
        "recordsPerPartition",
        "pieceBytes",
    )
}
"""The names of the options by their lower-case form."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Parsed options. start: None for the log's start, -1 for its end; end: None for its end.

    high_watermark: None if it is to be derived. high_watermarks: one for each path, or empty.
    """

    paths: tuple[Path, ...]
    quorum: QuorumConnection | None
    layer: str = LEDGER
    start: int | None = None
    end: int | None = None
    snapshots: str = NONE
    fail_on_loss: bool = True
    verify: bool = True
    records_per_trigger: int | None = None
    records_per_partition: int = RECORDS_PER_PARTITION
    piece_bytes: int = PIECE_BYTES
    high_watermark: int | None = None
    push_filters: bool = False
    of_clusters: bool = False
    high_watermarks: tuple[int | None, ...] = ()

    @classmethod
    def of(cls, given: Mapping[str, str]) -> SourceOptions:
        """Parse options. Raises OptionError for unknown, missing, invalid or contradictory ones."""
        unknown = [name for name in given if name.lower() not in _NAMES]
        if unknown:
            raise OptionError(f"unknown option {', '.join(sorted(unknown))}")
        values = _Values(given)
        texts = [values.text("path", ""), *values.text("paths", "").split(",")]
        paths = tuple(Path(text.strip()).absolute() for text in texts if text.strip())
        bootstrap = values.text("bootstrap", "")
        if bool(paths) == bool(bootstrap):
            raise OptionError("specify either path (a directory or file) or bootstrap (host:port)")
        layer = _layer(values.text("layer", LEDGER))
        snapshots = values.text("snapshots", NONE).lower()
        if snapshots not in (NONE, NEWEST, ALL) and not snapshots.isdecimal():
            raise OptionError(f"snapshots {snapshots!r}: expected none, newest, all or an offset")
        if bootstrap and snapshots not in (NONE, NEWEST):
            raise OptionError("a running quorum serves only its newest snapshot")
        if bootstrap and layer == RAW and snapshots != NONE:
            raise OptionError("the layer raw of a running quorum has no snapshots")
        of_clusters = values.truth("clusters", default="false")
        if of_clusters and bootstrap:
            raise OptionError("a running quorum is one cluster: clusters=true is for directories")
        marks = values.offsets("highWatermark", DERIVED, {DERIVED: None})
        if len(marks) > 1 and not (of_clusters and len(marks) == len(paths)):
            raise OptionError(
                f"highWatermark has {len(marks)} offsets: expected one, or with clusters=true one "
                "for each path"
            )
        high_watermark = marks[0] if len(marks) == 1 else None
        if bootstrap and high_watermark is not None:
            raise OptionError("reads of a running quorum end at its own high watermark")
        return cls(
            paths,
            _connection(bootstrap, values.texts) if bootstrap else None,
            layer,
            values.offset("startOffset", EARLIEST, {EARLIEST: None, LATEST: -1}),
            values.offset("endOffset", LATEST, {LATEST: None}),
            snapshots,
            values.truth("failOnDataLoss"),
            values.truth("verifyChecksums"),
            values.positive("maxRecordsPerTrigger", None),
            values.positive("recordsPerPartition", RECORDS_PER_PARTITION) or RECORDS_PER_PARTITION,
            values.positive("pieceBytes", PIECE_BYTES) or PIECE_BYTES,
            high_watermark,
            values.truth("pushFilters", default="false"),
            of_clusters,
            marks if len(marks) > 1 else (),
        )

    @property
    def schema(self) -> Schema:
        """The columns of the rows."""
        return layer_schema(self.layer, has_cluster=self.of_clusters)

    @property
    def end_or_max(self) -> int:
        return OFFSET_MAX if self.end is None else self.end

    @contextmanager
    def live_reader(self) -> Iterator[BatchReader]:
        """A reader of the running quorum."""
        from quorate.spark.live import live_reader

        assert self.quorum is not None, "directories are read"
        with live_reader(self.quorum) as reader:
            yield reader

    def replicas(self) -> list[LogReplica]:
        """Find the replicas at the paths. Raises NotALogError for a path without a log."""
        return find_replicas(list(self.paths))


def _layer(text: str) -> str:
    for layer in LAYERS:
        if text.lower() == layer.lower():
            return layer
    raise OptionError(f"unknown layer {text!r}: expected ledger, batches, raw or a record type")


def _connection(bootstrap: str, options: Mapping[str, str]) -> QuorumConnection:
    from quorate.spark.live import quorum_connection  # gRPC, which directories do not need

    return quorum_connection(bootstrap, options)


class _Values:
    def __init__(self, given: Mapping[str, str]) -> None:
        self.texts = {_NAMES[name.lower()]: str(value) for name, value in given.items()}

    def text(self, name: str, default: str) -> str:
        return self.texts.get(name, default).strip()

    def truth(self, name: str, default: str = "true") -> bool:
        text = self.text(name, default).lower()
        if text not in ("true", "false"):
            raise OptionError(f"{name} {text!r}: expected true or false")
        return text == "true"

    def offset(self, name: str, default: str, words: Mapping[str, int | None]) -> int | None:
        return self._offset(name, self.text(name, default), words)

    def offsets(
        self, name: str, default: str, words: Mapping[str, int | None]
    ) -> tuple[int | None, ...]:
        texts = self.text(name, default).split(",")
        return tuple(self._offset(name, text.strip(), words) for text in texts)

    def _offset(self, name: str, text: str, words: Mapping[str, int | None]) -> int | None:
        text = text.lower()
        if text in words:
            return words[text]
        if not text.isdecimal() or int(text) > OFFSET_MAX:
            raise OptionError(f"{name} {text!r}: expected {', '.join(words)} or an offset")
        return int(text)

    def positive(self, name: str, default: int | None) -> int | None:
        text = self.text(name, "")
        if not text:
            return default
        if not text.isdecimal() or int(text) == 0:
            raise OptionError(f"{name} {text!r}: expected a positive number")
        return int(text)
