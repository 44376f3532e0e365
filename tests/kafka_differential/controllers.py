"""A controller of each kind, alone in its quorum, that does nothing by itself.

Both have the cluster id, metadata.version, authorizer and SASL of `tests.wire.compared_clusters`.
No session expires, no no-op record is written, no leadership is moved back, no leader out of sync
elected after a while, and no snapshot taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.integration.support import CLUSTER, PARTITION
from tests.kafka import KAFKA_4_3, fetch
from tests.kafka_differential.side import Side
from tests.wire.compared_clusters import start_kafkas_controller, start_quorates_controller

RELEASE: Final = "4.3"
USER: Final = "broker"
PASSWORD: Final = "secret"
FAR_MS: Final = 2**31 - 1
QUIET: Final[Mapping[str, object]] = {
    "broker.session.timeout.ms": FAR_MS,
    "metadata.max.idle.interval.ms": 0,
    "leader.imbalance.check.interval.seconds": FAR_MS // 1000,
    "unclean.leader.election.interval.ms": FAR_MS,
    "delegation.token.expiry.check.interval.ms": FAR_MS,
    "metadata.log.max.record.bytes.between.snapshots": 2**62,
    "metadata.log.max.snapshot.interval.ms": 0,
    "num.partitions": 2,
    "default.replication.factor": 2,
}
KAFKAS: Final[Mapping[str, object]] = {
    "controller.quorum.append.linger.ms": 0,
    "auto.leader.rebalance.enable": "false",
}
JVM: Final = (
    "-Xmx1g",
    "-XX:TieredStopAtLevel=4",
    # Each request writes several lines otherwise.
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
)


@contextmanager
def controllers(folder: Path) -> Iterator[tuple[Side, Side]]:
    """Both controllers, Kafka's first, started at once. folder: a new one for their files."""
    fetch(KAFKA_4_3)
    folder.mkdir(parents=True)

    def kafkas(stack: ExitStack) -> Side:
        port, data = start_kafkas_controller(
            folder / "kafka", stack, RELEASE, {**QUIET, **KAFKAS}, JVM
        )
        return Side("Kafka", port, data / PARTITION)

    def quorates(stack: ExitStack) -> Side:
        (folder / "quorate").mkdir()
        port, data = start_quorates_controller(folder / "quorate", stack, RELEASE, QUIET)
        return Side("Quorate", port, data / PARTITION)

    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        first, second = (pool.submit(make, stack) for make in (kafkas, quorates))
        sides = first.result(), second.result()
        for side in sides:
            stack.callback(side.close)
        yield sides


__all__ = ["CLUSTER", "PASSWORD", "USER", "controllers"]
