"""The catalogue of all metrics.

The README's table and the dashboards are checked against it, and it is checked against what
controllers and brokers export.

Names and meanings are those of KIP-595 ("Metrics", with KIP-996's states), KIP-853 ("Monitoring")
and KIP-866 ("Metrics") if these define the metric. The source of all others is "Quorate". Times are
in seconds and sizes in bytes unless the name says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

PREFIX = "quorate"
"""The prefix of every name in Prometheus' text format."""


class Kind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


_UNITS = {"s": "seconds", "By": "bytes", "1": "ratio"}
"""OpenTelemetry's units, and the suffixes for them in Prometheus' names."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One instrument.

    unit: in OpenTelemetry's notation, "" for plain counts. leader_only: whether only the leader
    exports it, because other replicas do not know the value. roles: the processes that export it.
    """

    name: str
    kind: Kind
    unit: str
    source: str
    description: str
    attributes: tuple[str, ...] = ()
    leader_only: bool = False
    roles: tuple[str, ...] = ("controller", "broker")

    @property
    def prometheus_name(self) -> str:
        """The name in Prometheus' text format, without the suffixes of a histogram's series.

        The SDK writes names in lower case.
        """
        name = f"{PREFIX}_{self.name.replace('-', '_')}".lower()
        unit = _UNITS.get(self.unit, "")
        if unit and not name.endswith("_" + unit):
            name += "_" + unit
        return name + "_total" if self.kind is Kind.COUNTER else name


def _gauge(
    name: str,
    source: str,
    description: str,
    unit: str = "",
    *attributes: str,
    leader_only: bool = False,
) -> Metric:
    return Metric(name, Kind.GAUGE, unit, source, description, attributes, leader_only)


def _counter(name: str, source: str, description: str, unit: str = "") -> Metric:
    return Metric(name, Kind.COUNTER, unit, source, description)


def _histogram(name: str, source: str, description: str) -> Metric:
    return Metric(name, Kind.HISTOGRAM, "s", source, description)


def _of(role: str, *metrics: Metric) -> tuple[Metric, ...]:
    """Metrics that only processes of one role export."""
    return tuple(replace(metric, roles=(role,)) for metric in metrics)


_REPLICA = ("replica", "directory-id", "voter")

REPLICA_METRICS: tuple[Metric, ...] = (
    _gauge(
        "current-state",
        "KIP-595",
        "1 for the role this replica has, 0 for the others",
        "",
        "state",
    ),
    _gauge("current-leader", "KIP-595", "Id of the leader; -1: unknown"),
    _gauge("current-vote", "KIP-595", "Id of the replica voted for in this epoch; -1: none"),
    _gauge(
        "current-vote-directory-id",
        "KIP-853",
        "1, with the directory id voted for; AAAAAAAAAAAAAAAAAAAAAA: none",
        "",
        "directory-id",
    ),
    _gauge("current-epoch", "KIP-595", "The epoch of the quorum"),
    _gauge("high-watermark", "KIP-595", "Offset before which everything is known to be committed"),
    _gauge("log-end-offset", "KIP-595", "Offset that the next record will have"),
    _gauge("log-end-epoch", "KIP-595", "Epoch of the last record"),
    _gauge("number-of-voters", "KIP-853", "Voters in the set in force"),
    _gauge(
        "number-of-observers",
        "KIP-853",
        "Replicas that fetch and are no voters",
        leader_only=True,
    ),
    _gauge(
        "number-of-offline-voters",
        "KIP-853",
        "Voters that have not fetched within the fetch timeout",
        leader_only=True,
    ),
    _gauge(
        "uncommitted-voter-change",
        "KIP-853",
        "1 while a change of the voters is in the log and not committed",
    ),
    _gauge("IsObserver", "KIP-853", "1 if this node is no voter"),
    _gauge(
        "number-unknown-voter-connections",
        "KIP-595",
        "Voters of which no endpoint is known",
    ),
    _gauge(
        "ignored-static-voters",
        "KIP-853",
        "1 if controller.quorum.voters is set and not used",
    ),
    _histogram("commit-latency", "KIP-595", "From the leader's append to the commit"),
    _histogram(
        "election-latency", "KIP-595", "From the first vote asked for to a leader that is known"
    ),
    _gauge(
        "fetch-records-rate",
        "KIP-595",
        "Records fetched from the leader a second, over 30 s",
    ),
    _gauge(
        "append-records-rate",
        "KIP-595",
        "Records appended as leader a second, over 30 s",
    ),
    _gauge(
        "poll-idle-ratio",
        "KIP-595",
        "Part of its time that the event loop's thread does not compute, over 30 s",
        "1",
    ),
    _counter("fetched-records", "Quorate", "Records fetched from leaders"),
    _counter("appended-records", "Quorate", "Records appended as leader"),
    _counter("role-changes", "Quorate", "Changes of this replica's role"),
    _counter(
        "log-checksum-mismatches",
        "Quorate",
        "Ranges of the committed log in which this replica, as leader, found voters to differ",
    ),
    _gauge(
        "ready",
        "Quorate",
        "1 if this node does its part: it leads, or its leader answers; a broker is unfenced too",
    ),
    _gauge(
        "follower-lag",
        "Quorate",
        "Records that a replica does not have yet",
        "",
        *_REPLICA,
        leader_only=True,
    ),
    _gauge(
        "follower-lag-time",
        "Quorate",
        "Since a replica last had everything",
        "s",
        *_REPLICA,
        leader_only=True,
    ),
    _gauge("pending-bytes", "Quorate", "Appended by clients and not committed", "By"),
    _gauge("pending-appends", "Quorate", "Appends by clients that wait for their commit"),
    _gauge("parked-fetches", "Quorate", "Fetches that wait for records"),
    _gauge("log-start-offset", "Quorate", "The first offset in the log"),
    _gauge("log-size", "Quorate", "Of the log's segments", "By"),
    _gauge("queued-bytes", "Quorate", "Appended to the log and not synced", "By"),
    _histogram("fsync-latency", "Quorate", "Of each sync of the log"),
    _gauge("snapshot-offset", "Quorate", "Where the newest snapshot ends; -1: there is none"),
    _gauge(
        "snapshot-age",
        "Quorate",
        "Since the newest snapshot was written; absent if there is none",
        "s",
    ),
    _gauge("snapshot-size", "Quorate", "Of the newest snapshot; absent if there is none", "By"),
)
"""The metrics of a running replica of the metadata log, on a controller or a broker."""

CONTROLLER_METRICS = _of(
    "controller",
    _gauge("kafka-open-connections", "Quorate", "To the listener for Kafka's brokers"),
    _gauge("kafka-handshakes", "Quorate", "Of TLS, under way or waiting for their turn there"),
    _counter(
        "kafka-closed-connections",
        "Quorate",
        "Refused there, or closed in favour of others, also during the handshake",
    ),
    _gauge(
        "ZkMigrationState",
        "KIP-866",
        "0: no migration, 1: under way, 2: begun, nothing copied yet, 3: finished",
        leader_only=True,
    ),
    _gauge(
        "MetadataType",
        "KIP-866",
        "Where metadata is decided: 1: in ZooKeeper, 2: in the log, 3: in the log, and written to "
        "both",
        leader_only=True,
    ),
    _gauge(
        "MigratingZkBrokerCount",
        "KIP-866",
        "Brokers in ZooKeeper mode that are registered",
        leader_only=True,
    ),
    _gauge(
        "ZkWriteBehindLag",
        "KIP-866",
        "Committed records that ZooKeeper does not show yet",
        leader_only=True,
    ),
    _gauge(
        "ZkWriteSnapshotTimeMs",
        "KIP-866",
        "Milliseconds that the last synchronization of ZooKeeper took",
        leader_only=True,
    ),
    _gauge(
        "ZkWriteDeltaTimeMs",
        "KIP-866",
        "Milliseconds that the last write of changes to ZooKeeper took",
        leader_only=True,
    ),
)
"""The additional metrics of a running controller."""

BROKER_METRICS = _of(
    "broker",
    _gauge("fenced", "Quorate", "1 unless this broker is registered and unfenced"),
    _gauge("partition-count", "Quorate", "Replicas of partitions on this broker"),
    _gauge("leader-count", "Quorate", "Partitions that this broker leads"),
    _gauge(
        "under-replicated-partitions",
        "Quorate",
        "Partitions that this broker leads and whose ISR lacks replicas",
    ),
    _gauge(
        "under-min-isr-partitions",
        "Quorate",
        "Partitions that this broker leads and whose ISR is smaller than min.insync.replicas",
    ),
)
"""The additional metrics of a running broker."""

PROCESS_METRICS: tuple[Metric, ...] = (
    _gauge("formatted", "Quorate", "0 while the node waits to be formatted"),
    _gauge("start-time", "Quorate", "When the process began, since 1970", "s"),
    _counter("cpu-time", "Quorate", "Processor time used, in user and system mode", "s"),
    _gauge("resident-memory", "Quorate", "Memory of the process that is in RAM", "By"),
    *_of(
        "controller",
        _gauge("open-connections", "Quorate", "To the listeners for controllers and clients"),
        _counter(
            "closed-connections", "Quorate", "Closed because their address, or all, had too many"
        ),
    ),
    _gauge("open-files", "Quorate", "File descriptors in use"),
    _gauge("open-files-limit", "Quorate", "File descriptors that the process may use"),
    _gauge("disk-free", "Quorate", "Free on the disk of metadata.log.dir", "By"),
    _gauge("disk-size", "Quorate", "Size of the disk of metadata.log.dir", "By"),
)
"""The metrics of every process, even while it waits to be formatted."""

METRICS = REPLICA_METRICS + CONTROLLER_METRICS + BROKER_METRICS + PROCESS_METRICS

BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}


def table() -> str:
    """All metrics as a Markdown table, for the README."""
    lines = ["| metric | in Prometheus | from | meaning |", "|---|---|---|---|"]
    for metric in METRICS:
        labels = ", ".join(f"`{name.replace('-', '_')}`" for name in metric.attributes)
        note = "; the leader's only" if metric.leader_only else ""
        if metric.roles == ("broker",):
            note += "; brokers'"
        elif metric.roles == ("controller",) and not metric.leader_only:
            note += "; controllers'"
        lines.append(
            f"| {metric.name} | `{metric.prometheus_name}`{f' by {labels}' if labels else ''} "
            f"| {metric.source} | {metric.description}{note} |"
        )
    return "\n".join(lines)
