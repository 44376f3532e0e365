"""The catalogue of all metrics.

The table in docs/metrics.md and the dashboards are checked against it, and it is checked against
what controllers and brokers export.

Names and meanings are those of KIP-595 ("Metrics", with KIP-996's states), KIP-853 ("Monitoring")
and KIP-866 ("Metrics") if these define the metric. The source of all others is "Quorate". Times are
in seconds and sizes in bytes unless the name says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

PREFIX = "quorate"
"""The prefix of every name in Prometheus' text format."""


class MetricKind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


_UNITS = {"s": "seconds", "By": "bytes", "1": "ratio"}
"""OpenTelemetry's units, and the suffixes for them in Prometheus' names."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One instrument."""

    name: str
    kind: MetricKind
    unit: str
    """The unit in OpenTelemetry's notation, "" for plain counts."""
    source: str
    description: str
    attributes: tuple[str, ...] = ()
    leader_only: bool = False
    """Whether only the leader exports the metric, because other replicas do not know the value."""
    roles: tuple[str, ...] = ("controller", "broker")
    """The processes that export the metric."""

    @property
    def prometheus_name(self) -> str:
        """The name in Prometheus' text format, without the suffixes of a histogram's series.

        The SDK writes names in lower case.
        """
        name = f"{PREFIX}_{self.name.replace('-', '_')}".lower()
        unit = _UNITS.get(self.unit, "")
        if unit and not name.endswith("_" + unit):
            name += "_" + unit
        return name + "_total" if self.kind is MetricKind.COUNTER else name


def _gauge(
    name: str,
    source: str,
    description: str,
    unit: str = "",
    *attributes: str,
    leader_only: bool = False,
) -> Metric:
    return Metric(name, MetricKind.GAUGE, unit, source, description, attributes, leader_only)


def _counter(name: str, source: str, description: str, unit: str = "") -> Metric:
    return Metric(name, MetricKind.COUNTER, unit, source, description)


def _histogram(name: str, source: str, description: str) -> Metric:
    return Metric(name, MetricKind.HISTOGRAM, "s", source, description)


def _of(role: str, *metrics: Metric) -> tuple[Metric, ...]:
    """Metrics that only processes of one role export."""
    return tuple(replace(metric, roles=(role,)) for metric in metrics)


_REPLICA = ("replica", "directory-id", "voter")

REPLICA_METRICS: tuple[Metric, ...] = (
    _gauge(
        "current-state",
        "KIP-595",
        "1 for the current role of this replica, 0 for the other roles",
        "",
        "state",
    ),
    _gauge("current-leader", "KIP-595", "Id of the leader; -1 if unknown"),
    _gauge(
        "current-vote",
        "KIP-595",
        "Id of the replica that this one voted for in this epoch; -1 if none",
    ),
    _gauge(
        "current-vote-directory-id",
        "KIP-853",
        "Always 1; the label is the directory id voted for, AAAAAAAAAAAAAAAAAAAAAA if none",
        "",
        "directory-id",
    ),
    _gauge("current-epoch", "KIP-595", "Current epoch of the quorum"),
    _gauge(
        "high-watermark", "KIP-595", "Offset before which all records are known to be committed"
    ),
    _gauge("log-end-offset", "KIP-595", "Offset that the next appended record will get"),
    _gauge("log-end-epoch", "KIP-595", "Epoch of the last record"),
    _gauge("number-of-voters", "KIP-853", "Number of voters in the current voter set"),
    _gauge(
        "number-of-observers",
        "KIP-853",
        "Number of replicas that fetch but are not voters",
        leader_only=True,
    ),
    _gauge(
        "number-of-offline-voters",
        "KIP-853",
        "Number of voters that have not fetched within the fetch timeout",
        leader_only=True,
    ),
    _gauge(
        "uncommitted-voter-change",
        "KIP-853",
        "1 while a change of the voter set is in the log but not committed",
    ),
    _gauge("IsObserver", "KIP-853", "1 if this node is not a voter"),
    _gauge(
        "number-unknown-voter-connections",
        "KIP-595",
        "Number of voters without a known endpoint",
    ),
    _gauge(
        "ignored-static-voters",
        "KIP-853",
        "1 if controller.quorum.voters is set but not used",
    ),
    _histogram("commit-latency", "KIP-595", "Time from the leader's append to the commit"),
    _histogram(
        "election-latency",
        "KIP-595",
        "Time from the first vote or pre-vote request until a leader is known",
    ),
    _gauge(
        "fetch-records-rate",
        "KIP-595",
        "Records fetched from the leader per second, averaged over 30 s",
    ),
    _gauge(
        "append-records-rate",
        "KIP-595",
        "Records appended as leader per second, averaged over 30 s",
    ),
    _gauge(
        "poll-idle-ratio",
        "KIP-595",
        "Fraction of time that the event loop's thread is idle, averaged over 30 s",
        "1",
    ),
    _counter("fetched-records", "Quorate", "Records fetched from leaders"),
    _counter("appended-records", "Quorate", "Records appended as leader"),
    _counter("role-changes", "Quorate", "Number of role changes of this replica"),
    _counter(
        "log-checksum-mismatches",
        "Quorate",
        "Ranges of the committed log that differ between voters, as detected by this replica as "
        "leader",
    ),
    _gauge(
        "ready",
        "Quorate",
        "1 if this node is ready: it leads, or its leader responds; a broker must also be unfenced",
    ),
    _gauge(
        "follower-lag",
        "Quorate",
        "Number of records that the replica does not have yet",
        "",
        *_REPLICA,
        leader_only=True,
    ),
    _gauge(
        "follower-lag-time",
        "Quorate",
        "Time since the replica was last caught up",
        "s",
        *_REPLICA,
        leader_only=True,
    ),
    _gauge(
        "pending-bytes",
        "Quorate",
        "Size of the records that clients appended and that are not committed yet",
        "By",
    ),
    _gauge("pending-appends", "Quorate", "Number of client appends that wait for their commit"),
    _gauge("parked-fetches", "Quorate", "Number of fetches that wait for records"),
    _gauge("log-start-offset", "Quorate", "First offset in the log"),
    _gauge("log-size", "Quorate", "Total size of the log's segments", "By"),
    _gauge(
        "queued-bytes",
        "Quorate",
        "Size of the records appended to the log but not synced yet",
        "By",
    ),
    _histogram("fsync-latency", "Quorate", "Duration of each sync of the log"),
    _gauge("snapshot-offset", "Quorate", "End offset of the newest snapshot; -1 if there is none"),
    _gauge(
        "snapshot-age",
        "Quorate",
        "Time since the newest snapshot was written; absent if there is none",
        "s",
    ),
    _gauge(
        "snapshot-size", "Quorate", "Size of the newest snapshot; absent if there is none", "By"
    ),
)
"""The metrics of a running replica of the metadata log, on a controller or a broker."""

CONTROLLER_METRICS = _of(
    "controller",
    _gauge("watchers", "Quorate", "Number of open streams of reads that follow the log"),
    _counter("watch-sent-bytes", "Quorate", "Bytes sent to reads that follow the log", "By"),
    _gauge(
        "kafka-open-connections", "Quorate", "Open connections to the listener for Kafka's brokers"
    ),
    _gauge(
        "kafka-handshakes",
        "Quorate",
        "TLS handshakes in progress or queued at the listener for Kafka's brokers",
    ),
    _counter(
        "kafka-closed-connections",
        "Quorate",
        "Connections to the listener for Kafka's brokers that were rejected, or closed in favour "
        "of others, including during the handshake",
    ),
    _gauge(
        "ZkMigrationState",
        "KIP-866",
        "0: no migration, 1: in progress, 2: started but nothing copied yet, 3: finished",
        leader_only=True,
    ),
    _gauge(
        "MetadataType",
        "KIP-866",
        "Source of truth for the metadata: 1: ZooKeeper, 2: the log, 3: the log, with dual "
        "writes to ZooKeeper",
        leader_only=True,
    ),
    _gauge(
        "MigratingZkBrokerCount",
        "KIP-866",
        "Number of registered brokers in ZooKeeper mode",
        leader_only=True,
    ),
    _gauge(
        "ZkWriteBehindLag",
        "KIP-866",
        "Number of committed records that are not written to ZooKeeper yet",
        leader_only=True,
    ),
    _gauge(
        "ZkWriteSnapshotTimeMs",
        "KIP-866",
        "Duration of the last full synchronization of ZooKeeper, in milliseconds",
        leader_only=True,
    ),
    _gauge(
        "ZkWriteDeltaTimeMs",
        "KIP-866",
        "Duration of the last write of changes to ZooKeeper, in milliseconds",
        leader_only=True,
    ),
)
"""The additional metrics of a running controller."""

BROKER_METRICS = _of(
    "broker",
    _gauge("fenced", "Quorate", "1 unless this broker is registered and unfenced"),
    _gauge("partition-count", "Quorate", "Number of partition replicas on this broker"),
    _gauge("leader-count", "Quorate", "Number of partitions that this broker leads"),
    _gauge(
        "under-replicated-partitions",
        "Quorate",
        "Number of partitions led by this broker whose ISR lacks replicas",
    ),
    _gauge(
        "under-min-isr-partitions",
        "Quorate",
        "Number of partitions led by this broker whose ISR is smaller than min.insync.replicas",
    ),
)
"""The additional metrics of a running broker."""

PROCESS_METRICS: tuple[Metric, ...] = (
    _gauge("formatted", "Quorate", "0 while the node waits to be formatted"),
    _gauge("start-time", "Quorate", "Start time of the process since the Unix epoch", "s"),
    _counter("cpu-time", "Quorate", "User and system CPU time used", "s"),
    _gauge("resident-memory", "Quorate", "Resident memory of the process", "By"),
    *_of(
        "controller",
        _gauge(
            "open-connections",
            "Quorate",
            "Open connections to the listeners for controllers and clients",
        ),
        _counter(
            "closed-connections",
            "Quorate",
            "Connections closed because one address, or all together, had too many",
        ),
    ),
    _gauge("open-files", "Quorate", "Number of open file descriptors"),
    _gauge("open-files-limit", "Quorate", "Maximum number of open file descriptors"),
    _gauge("disk-free", "Quorate", "Free space on the disk of metadata.log.dir", "By"),
    _gauge("disk-size", "Quorate", "Size of the disk of metadata.log.dir", "By"),
)
"""The metrics of every process, even while it waits to be formatted."""

METRICS = REPLICA_METRICS + CONTROLLER_METRICS + BROKER_METRICS + PROCESS_METRICS

BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}


def table() -> str:
    """All metrics as a Markdown table, for docs/metrics.md."""
    lines = ["| metric | in Prometheus | from | meaning |", "|---|---|---|---|"]
    for metric in METRICS:
        labels = ", ".join(f"`{name.replace('-', '_')}`" for name in metric.attributes)
        note = "; leader only" if metric.leader_only else ""
        if metric.roles == ("broker",):
            note += "; brokers only"
        elif metric.roles == ("controller",) and not metric.leader_only:
            note += "; controllers only"
        lines.append(
            f"| {metric.name} | `{metric.prometheus_name}`{f' by {labels}' if labels else ''} "
            f"| {metric.source} | {metric.description}{note} |"
        )
    return "\n".join(lines)
