"""AlterPartition as bytes, versions 2 and 3, without kio's objects.

One request may contain every partition that a broker leads, and after a failure all brokers send
theirs at once. kio creates an object for each topic, partition and member, and checks each field:
that takes five times as long as the rest of the conversion. All other messages are kio's.

The rules of `schemas` and `bounds` hold: items are counted, unknown tagged fields are skipped, and
bytes that do not match the schema raise ValueError.

Source: Kafka's AlterPartitionRequest.json and AlterPartitionResponse.json; KIP-497, KIP-841,
KIP-903.
"""

from __future__ import annotations

import struct
from typing import Final

from quorate.bridge.messages.bounds import Walk
from quorate.common.identifiers import uuid_to_bytes
from quorate.metadata import requests as r
from quorate.records.primitives import encode_unsigned_varint

BROKER_EPOCHS_SINCE: Final = 3
"""The version in which each member of an ISR has its broker epoch (KIP-903)."""

_BROKER: Final = struct.Struct(">iq")
"""A broker's id and epoch."""
_MEMBER: Final = struct.Struct(">iqB")
"""The same, and the number of tagged fields, which this version does not have."""
_EPOCHS_BEFORE: Final = struct.Struct(">ii")
"""The partition and the leader epoch; the ISR follows."""
_EPOCHS_AFTER: Final = struct.Struct(">bi")
"""The leader recovery state and the partition epoch."""
_RESULT: Final = struct.Struct(">ihii")
"""The partition, error, leader and leader epoch; the ISR follows."""
_HEAD: Final = struct.Struct(">ih")
"""The throttle time in ms and the error."""
_NO_TAGS: Final = b"\0"


def read_isr_change(found: Walk, version: int) -> r.AlterPartition:
    """Decode a request from the walk's position on. Raises ValueError."""
    broker_id, broker_epoch = _BROKER.unpack(found.take(_BROKER.size))
    topics = []
    for _ in range(found.length()):
        topic_id = found.uuid()
        proposals = tuple([_proposal(found, version) for _ in range(found.length())])
        found.skip_tagged()
        topics.append(r.TopicProposals(proposals, topic_id))
    found.skip_tagged()
    return r.AlterPartition(broker_id, broker_epoch, tuple(topics), version)


def _proposal(found: Walk, version: int) -> r.PartitionProposal:
    partition, leader_epoch = _EPOCHS_BEFORE.unpack(found.take(_EPOCHS_BEFORE.size))
    size = found.length()
    if version < BROKER_EPOCHS_SINCE:
        isr = tuple(map(r.IsrMember, struct.unpack(f">{size}i", found.take(4 * size))))
    else:
        isr = _members(found, size)
    recovery, partition_epoch = _EPOCHS_AFTER.unpack(found.take(_EPOCHS_AFTER.size))
    found.skip_tagged()
    return r.PartitionProposal(partition, leader_epoch, partition_epoch, isr, recovery)


def _members(found: Walk, size: int) -> tuple[r.IsrMember, ...]:
    start = found.at
    members = list(_MEMBER.iter_unpack(found.take(size * _MEMBER.size)))
    if not any(tags for _, _, tags in members):
        return tuple([r.IsrMember(broker_id, epoch) for broker_id, epoch, _ in members])
    found.at = start
    return tuple([_tagged_member(found) for _ in range(size)])


def _tagged_member(found: Walk) -> r.IsrMember:
    broker_id, broker_epoch = _BROKER.unpack(found.take(_BROKER.size))
    found.skip_tagged()
    return r.IsrMember(broker_id, broker_epoch)


def write_isr_changed(response: r.AlterPartitionResponse) -> bytes:
    """Encode a response. Its throttle time is always 0."""
    parts = [_HEAD.pack(0, response.error), encode_unsigned_varint(len(response.topics) + 1)]
    for topic in response.topics:
        parts += (uuid_to_bytes(topic.topic_id), encode_unsigned_varint(len(topic.partitions) + 1))
        for each in topic.partitions:
            failed = bool(each.error)
            isr = each.isr
            parts += (
                _RESULT.pack(
                    each.partition,
                    each.error,
                    0 if failed else each.leader,
                    0 if failed else each.leader_epoch,
                ),
                encode_unsigned_varint(len(isr) + 1),
                struct.pack(f">{len(isr)}i", *isr),
                _EPOCHS_AFTER.pack(
                    each.leader_recovery_state, 0 if failed else each.partition_epoch
                ),
                _NO_TAGS,
            )
        parts.append(_NO_TAGS)
    parts.append(_NO_TAGS)
    return b"".join(parts)
