"""A cluster that migrates, in memory, and Kafka's messages as its brokers send them."""

from __future__ import annotations

from typing import Any

from quorate.bridge.messages import schemas as s
from quorate.bridge.requests.quotas import MutationQuotas
from quorate.common.error_codes import ErrorCode
from quorate.metadata import requests as r
from quorate.metadata.image.quotas import QuotasImage
from quorate.raft.messages import CurrentLeader
from quorate.records.metadata import ZkMigrationState, ZkMigrationStateRecord
from quorate.rpc.principals import Caller
from quorate.rpc.wire.convert_metadata import MetadataAnswer

from tests.unit.metadata.metadata_support import Cluster, uuid_of

LEVEL = 21
NO_QUOTAS = MutationQuotas(QuotasImage, 11, 1)
LEADER = CurrentLeader(1, 3001)


class Migrating(Cluster):
    """Brokers in ZooKeeper mode, registered and unfenced."""

    def __init__(self, brokers: int = 0) -> None:
        super().__init__(level=LEVEL)
        self.ask(r.CreateTopics((r.NewTopic("refused"),)))  # writes the features
        self.state(ZkMigrationState.MIGRATION)
        for broker in range(1, brokers + 1):
            self.start_zk_broker(broker)

    def state(self, state: ZkMigrationState) -> None:
        record = ZkMigrationStateRecord(state, version=0)
        assert self.controller.replay((record,), self.now_ms, self.offset) is None
        self.committed.apply(record, self.offset)
        self.offset += 1

    def start_zk_broker(self, broker: int, incarnation: object = 0) -> None:
        answer = self.register(broker, incarnation, is_migrating_zk_broker=True)
        assert answer.error is ErrorCode.NONE, answer
        assert not self.heartbeat(broker).is_fenced

    async def answer(self, request: Any, _timeout_ms: int, caller: Caller) -> MetadataAnswer:
        """As the bridge asks the metadata controller."""
        self.caller = caller
        return MetadataAnswer(ErrorCode.NONE, LEADER, self.ask(request))


def call(api_key: int, version: int, body: Any) -> s.Call:
    """A request as it is read from the wire."""
    return s.read_call(s.write_header(api_key, version, 11, "broker-1") + s.write(body))


def envelope(api_key: int, version: int, body: Any, principal: str = "User:alice") -> s.Call:
    """A client's request as a broker forwards it."""
    kind, _, name = principal.partition(":")
    who = s.principal_type()(type_=kind, name=name, token_authenticated=False)
    inner = s.write_header(api_key, version, 77, "client") + s.write(body)
    return call(
        s.ENVELOPE,
        0,
        s.request_type(s.ENVELOPE, 0)(
            request_data=inner,
            request_principal=b"\0\0" + s.write(who),
            client_host_address=bytes((10, 0, 0, 7)),
        ),
    )


__all__ = ["LEADER", "LEVEL", "NO_QUOTAS", "Migrating", "call", "envelope", "uuid_of"]
