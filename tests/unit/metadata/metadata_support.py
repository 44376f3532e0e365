"""A controller with a committed image beside it: every batch goes through Kafka's bytes."""

from __future__ import annotations

import random
from base64 import urlsafe_b64encode
from typing import Any

from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.features import METADATA_VERSION
from quorate.metadata import requests as r
from quorate.metadata.controller import ControllerResult, MetadataController
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.metadata.image.partitions import Partition
from quorate.metadata.metadata_version import SUPPORTED
from quorate.metadata.settings import ControllerSettings
from quorate.records.metadata import decode, encode

FEATURES = tuple(r.BrokerFeature(name, levels) for name, levels in SUPPORTED.items())
QUIET = ControllerSettings(
    idle_interval_ms=0, leader_imbalance_check_interval_ms=0, unclean_election_interval_ms=0
)
"""Nothing happens but what the test does, sessions apart."""


def uuid_of(seed: object) -> str:
    return urlsafe_b64encode(random.Random(str(seed)).randbytes(16)).decode().rstrip("=")


class Cluster:
    """The active controller, what it wrote, and the brokers' epochs.

    After each step the working image equals the committed one, which replayed the records from
    their bytes.
    """

    def __init__(
        self,
        brokers: int = 0,
        *,
        settings: ControllerSettings = QUIET,
        level: int | None = None,
        racks: tuple[str | None, ...] = (),
        elr: bool = False,
        **options: Any,
    ) -> None:
        if level is not None:
            options["bootstrap_levels"] = {METADATA_VERSION: level}
        if elr:
            options["bootstrap_levels"] = {
                METADATA_VERSION: 30,
                "eligible.leader.replicas.version": 1,
            }
        self.random = random.Random(7)
        self.controller = MetadataController(lambda: self.random.randbytes(16), settings, **options)
        self.committed = MetadataImage()
        self.now_ms = 1_000
        self.epoch = 0
        self.offset = 0
        self.epochs: dict[int, int] = {}
        self.last: tuple[Any, ...] = ()
        self.activate()
        for broker in range(1, brokers + 1):
            self.start_broker(broker, rack=racks[broker - 1] if racks else None)

    # --- steps ------------------------------------------------------------------------------------

    def _commit(self, result: ControllerResult | None) -> Any:
        self.last = () if result is None else result.records
        if result is None:
            return None
        copies = [decode(encode(record, record.version)) for record in result.records]
        self.committed.apply_batch(copies, self.offset, self.epoch, self.now_ms)
        self.offset += len(copies)
        assert self.controller.image == self.committed
        return result.response

    def activate(self) -> None:
        """A new active controller: fail over."""
        self.epoch += 1
        self._commit(self.controller.activate(self.committed, self.epoch, self.now_ms, self.offset))

    def ask(self, request: r.Request) -> Any:
        return self._commit(self.controller.handle(request, self.now_ms, self.offset))

    def tick(self) -> bool:
        result = self.controller.tick(self.now_ms, self.offset)
        self._commit(result)
        return result is not None

    def pass_time(self, ms: int) -> None:
        """Time goes by, and all that is due is done."""
        end = self.now_ms + ms
        for _ in range(10_000):
            deadline = self.controller.next_deadline_ms()
            if deadline is None or deadline > end:
                break
            self.now_ms = max(self.now_ms, deadline)
            self.tick()
        else:
            raise AssertionError("the controller never comes to rest")
        self.now_ms = end

    # --- brokers ----------------------------------------------------------------------------------

    def register(
        self, broker: int, incarnation: object = 0, *, rack: str | None = None, **fields: Any
    ) -> r.RegisterBrokerResponse:
        request = r.RegisterBroker(
            broker,
            uuid_of(("incarnation", broker, incarnation)),
            (Endpoint("PLAINTEXT", f"broker-{broker}", 9092),),
            rack=rack,
            log_dirs=fields.pop("log_dirs", (uuid_of(("directory", broker)),)),
            features=fields.pop("features", FEATURES),
            **fields,
        )
        answer: r.RegisterBrokerResponse = self.ask(request)
        if answer.error is ErrorCode.NONE:
            self.epochs[broker] = answer.broker_epoch
        return answer

    def heartbeat(self, broker: int, **fields: Any) -> r.BrokerHeartbeatResponse:
        offset = fields.pop("metadata_offset", self.offset)
        answer: r.BrokerHeartbeatResponse = self.ask(
            r.BrokerHeartbeat(broker, self.epochs[broker], offset, **fields)
        )
        return answer

    def start_broker(
        self, broker: int, incarnation: object = 0, *, rack: str | None = None
    ) -> None:
        assert self.register(broker, incarnation, rack=rack).error is ErrorCode.NONE
        assert not self.heartbeat(broker).is_fenced

    def expire(self, *brokers: int) -> None:
        """These brokers' sessions end; the others are heard in time."""
        timeout = self.controller.settings.session_timeout_ms
        others = [
            broker
            for broker, found in self.committed.cluster.brokers.items()
            if broker not in brokers and not found.fenced
        ]
        self.pass_time(timeout - 1)
        for broker in others:
            self.heartbeat(broker)
        self.pass_time(1)

    # --- topics -----------------------------------------------------------------------------------

    def create(self, name: str, *assignments: tuple[int, ...], **configs: str) -> str:
        """A topic with these replicas; its id."""
        pairs = tuple((key.replace("_", "."), value) for key, value in configs.items())
        answer = self.ask(
            r.CreateTopics((r.NewTopic(name, assignments=assignments, configs=pairs),))
        )
        assert answer.topics[0].error is ErrorCode.NONE, answer
        return str(answer.topics[0].topic_id)

    def partition(self, topic: str, index: int = 0) -> Partition:
        found = self.committed.topics.partition(self.committed.topics.ids[topic], index)
        assert found is not None
        return found

    def propose(self, topic: str, isr: tuple[int, ...], **fields: Any) -> r.AlteredPartition:
        """AlterPartition by the partition's leader, with all that is true unless told otherwise."""
        found = self.partition(topic)
        version = fields.pop("version", 3)
        sender = fields.pop("sender", found.leader)
        epochs = fields.pop("epochs", {})
        proposal = r.PartitionProposal(
            fields.pop("partition", 0),
            fields.pop("leader_epoch", found.leader_epoch),
            fields.pop("partition_epoch", found.partition_epoch),
            tuple(r.IsrMember(b, epochs.get(b, self.epochs.get(b, -1))) for b in isr),
            fields.pop("leader_recovery_state", 0),
        )
        topic_id = fields.pop("topic_id", self.committed.topics.ids[topic])
        name = fields.pop("topic_name", topic)
        assert not fields, fields
        answer: r.AlterPartitionResponse = self.ask(
            r.AlterPartition(
                sender,
                self.epochs[sender],
                (r.TopicProposals((proposal,), topic_id, name),),
                version,
            )
        )
        assert answer.error is ErrorCode.NONE, answer
        return answer.topics[0].partitions[0]
