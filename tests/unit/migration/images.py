"""Images as ZooKeeper can hold them, for property tests: small worlds in which names meet again."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from hypothesis import strategies as st
from quorate.records.metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    RemoveTopicRecord,
    TopicRecord,
    UserScramCredentialRecord,
)


def uuid(number: int) -> str:
    return base64.urlsafe_b64encode(number.to_bytes(16, "big")).decode().rstrip("=")


NAMES = st.sampled_from(["a", "b", "a.b-c", "topics"])
USERS = st.sampled_from(["alice", "a b/c", "ü*~+%", "CN=x,O=y"])
BROKERS = st.integers(1, 4)
REPLICAS = st.lists(BROKERS, min_size=1, max_size=3, unique=True).map(tuple)
CONFIGS = st.sampled_from(["retention.ms", "cleanup.policy"])
TEXTS = st.sampled_from(["1", "compact", "ä", ""])
MAYBE_USER = st.none() | USERS


@st.composite
def topics(draw: st.DrawFn) -> list[MetadataRecord]:
    """Topics with partitions and configurations."""
    made: list[MetadataRecord] = []
    for number, name in enumerate(draw(st.lists(NAMES, unique=True, max_size=3))):
        topic_id = uuid(1000 + draw(st.integers(0, 3)) * 10 + number)
        made.append(TopicRecord(name, topic_id))
        for index in range(draw(st.integers(1, 3))):
            replicas = draw(REPLICAS)
            made.append(
                PartitionRecord(
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=replicas,
                    isr=replicas[: draw(st.integers(1, len(replicas)))],
                    adding_replicas=replicas[-1:] if draw(st.booleans()) else (),
                    removing_replicas=replicas[:1] if draw(st.booleans()) else (),
                    leader=draw(st.sampled_from([-1, replicas[0]])),
                    leader_recovery_state=draw(st.integers(0, 1)),
                    leader_epoch=draw(st.integers(0, 5)),
                    partition_epoch=0,
                )
            )
        made += [
            ConfigRecord(2, name, key, draw(TEXTS))
            for key in draw(st.lists(CONFIGS, unique=True, max_size=2))
        ]
    return made


@st.composite
def quota_entities(draw: st.DrawFn) -> tuple[QuotaEntity, ...]:
    kind = draw(st.sampled_from(["user", "client-id", "both", "ip"]))
    if kind == "both":
        return (
            QuotaEntity("user", draw(MAYBE_USER)),
            QuotaEntity("client-id", draw(MAYBE_USER)),
        )
    names = st.sampled_from(["10.0.0.1", None]) if kind == "ip" else MAYBE_USER
    return (QuotaEntity(kind, draw(names)),)


QUOTAS = st.builds(
    ClientQuotaRecord,
    entity=quota_entities(),
    key=st.sampled_from(["producer_byte_rate", "request_percentage"]),
    value=st.sampled_from([1.0, 12.5, 1e9]),
)
SCRAM = st.builds(
    UserScramCredentialRecord,
    name=USERS,
    mechanism=st.integers(1, 2),
    salt=st.binary(min_size=1, max_size=8),
    stored_key=st.just(b"stored"),
    server_key=st.just(b"server"),
    iterations=st.just(4096),
)
ACLS = st.builds(
    AccessControlEntryRecord,
    id=st.integers(1, 10**9).map(uuid),
    resource_type=st.integers(2, 7),
    resource_name=st.sampled_from(["a", "b", "*"]),
    pattern_type=st.integers(3, 4),
    principal=st.sampled_from(["User:a", "User:b"]),
    host=st.sampled_from(["*", "10.0.0.1"]),
    operation=st.integers(2, 14),
    permission_type=st.integers(2, 3),
)
BROKER_CONFIGS = st.builds(
    ConfigRecord,
    resource_type=st.just(4),
    resource_name=st.sampled_from(["", "1", "2"]),
    name=CONFIGS,
    value=TEXTS,
)
TOKENS = st.builds(
    DelegationTokenRecord,
    owner=st.just("User:a"),
    requester=st.just("User:b"),
    renewers=st.sampled_from([(), ("User:c",)]),
    issue_timestamp=st.integers(0, 9),
    max_timestamp=st.integers(0, 9),
    expiration_timestamp=st.integers(0, 9),
    token_id=st.sampled_from(["one", "two"]),
)


@st.composite
def worlds(draw: st.DrawFn) -> list[MetadataRecord]:
    """Records of a whole image."""
    made = draw(topics())
    for kind in (QUOTAS, SCRAM, ACLS, BROKER_CONFIGS, TOKENS):
        records: list[MetadataRecord] = draw(st.lists(kind, max_size=3))
        made += records
    if draw(st.booleans()):
        made.append(ProducerIdsRecord(1, 5, draw(st.integers(1, 3)) * 1000))
    return made


@st.composite
def later(draw: st.DrawFn, before: Sequence[MetadataRecord]) -> list[MetadataRecord]:
    """Records that change what earlier ones made."""
    made: list[MetadataRecord] = []
    removed: set[str] = set()
    for record in before:
        if draw(st.integers(0, 2)):
            continue
        match record:
            case TopicRecord():
                made.append(RemoveTopicRecord(record.topic_id))
                removed.add(record.topic_id)
                if draw(st.booleans()):
                    again = uuid(5000 + len(made))
                    made += [
                        TopicRecord(record.name, again),
                        PartitionRecord(
                            partition_id=0, topic_id=again, replicas=(3,), isr=(3,), leader=3,
                            leader_epoch=0, partition_epoch=0,
                        ),
                    ]  # fmt: skip
            case PartitionRecord() if record.topic_id not in removed:
                made.append(
                    PartitionChangeRecord(
                        partition_id=record.partition_id, topic_id=record.topic_id,
                        leader=-1, isr=record.isr[:1],
                    )
                )  # fmt: skip
            case ConfigRecord(resource_type=4):
                made.append(ConfigRecord(4, record.resource_name, record.name, None))
            case ClientQuotaRecord():
                made.append(ClientQuotaRecord(record.entity, record.key, 0.0, remove=True))
    for kind in (QUOTAS, ACLS, TOKENS, SCRAM):
        records: list[MetadataRecord] = draw(st.lists(kind, max_size=2))
        made += records
    return made
