"""Current values of a broker's own metrics (`telemetry.catalogue.BROKER_METRICS`)."""

from __future__ import annotations

from collections.abc import Iterator

from quorate.broker.lifecycle import Lifecycle
from quorate.broker.replica_manager import ReplicaManager
from quorate.broker.roles import LeaderRole
from quorate.telemetry.samples import Sample


def broker_samples(lifecycle: Lifecycle, manager: ReplicaManager) -> Iterator[Sample]:
    """Sample the broker's metrics. Runs on the event loop's thread."""
    machines = [replica.machine for replica in manager.replicas.values()]
    led = [(each, each.role) for each in machines if isinstance(each.role, LeaderRole)]
    under_replicated = [each for each, role in led if len(role.isr) < len(each.replicas)]
    yield Sample("fenced", float(not lifecycle.unfenced.is_set()))
    yield Sample("partition-count", len(machines))
    yield Sample("leader-count", len(led))
    yield Sample("under-replicated-partitions", len(under_replicated))
    yield Sample("under-min-isr-partitions", sum(each.is_under_min_isr for each, _ in led))
