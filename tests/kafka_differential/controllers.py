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
from tests.kafka_differential.kafka_host import KafkaHost
from tests.kafka_differential.side import Side
from tests.wire.compared_clusters import KAFKAS_OWN, start_quorates_controller
from tests.wire.kafka_nodes import make_controller, only_voter

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


@contextmanager
def controllers(folder: Path, host: KafkaHost) -> Iterator[tuple[Side, Side]]:
    """Both controllers, Kafka's first, started at once. folder: a new one for their files. host: of
    Kafka's controller.
    """
    folder.mkdir(parents=True)

    def kafkas(stack: ExitStack) -> Side:
        node, address = make_controller(folder / "kafka", {**KAFKAS_OWN, **QUIET, **KAFKAS})
        stack.callback(host.stop)
        host.start(node, RELEASE, only_voter(address))
        return Side("Kafka", int(address.rpartition(":")[2]), node.folder / "data" / PARTITION)

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
