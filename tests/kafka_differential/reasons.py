"""The deliberate differences, each with its reason."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tests.kafka_differential.comparing import (
    AGAIN_UNCLEAN,
    MOVED_LAST_KNOWN,
    OTHER_FACTOR,
    TWICE,
    WITH_LAST_KNOWN,
    Difference,
)


@dataclass(frozen=True, slots=True)
class Reason:
    """pattern: of the kind of a difference. text: why the two controllers differ."""

    pattern: str
    text: str


CHANGES: Final = re.compile(", (?=PARTITION_CHANGE_RECORD)")
"""Between the parts of a difference that are each about changes of a partition."""

REASONS: Final[Sequence[Reason]] = (
    Reason(
        "[^:]*: records: NO_OP_RECORD more",
        "before the first node of Kafka, Quorate writes that such nodes use the quorum, in a "
        "NoOpRecord that Kafka skips; it excludes the records of applications",
    ),
    Reason(
        "[^:]*: (response )?order: .*",
        "the records of a batch, or the results in a response, have the order of a hash table in "
        "Kafka, often one of random ids; in Quorate that of the request or of creation",
    ),
    Reason(
        r"[^:]*: records: PARTITION_CHANGE_RECORD\.last_known_elr of no leader,  \d+/\d+",
        "Kafka writes -1 as the last known leader of a leaderless partition that loses replicas",
    ),
    Reason(
        rf"[^:]*: records: PARTITION_CHANGE_RECORD {WITH_LAST_KNOWN}\.last_known_elr,  \d+/\d+",
        "Kafka keeps a last known leader from before another one led while eligible leader "
        "replicas were disabled; Quorate records the last one, which has the newest records",
    ),
    Reason(
        rf"[^:]*: records: PARTITION_CHANGE_RECORD ({AGAIN_UNCLEAN}, )?{MOVED_LAST_KNOWN}\."
        r"last_known_elr,  \d+/\d+",
        "Kafka keeps a last known leader that leaves the replicas; Quorate forgets it, because it "
        "has no records if it is added again",
    ),
    Reason(
        rf"[^:]*: records: PARTITION_CHANGE_RECORD {OTHER_FACTOR}\."
        r"(eligible_leader_replicas, |last_known_elr, )+ \d+/\d+",
        "Kafka limits min.insync.replicas of all partitions of a topic to the number of replicas "
        "of partition 0; Quorate, as the brokers, to the number of the partition's own replicas",
    ),
    Reason(
        rf"AlterPartition: records: PARTITION_CHANGE_RECORD {AGAIN_UNCLEAN}\."
        r"leader_recovery_state 0/-1,  \d+/\d+",
        "if the leader reports that it has recovered, and another one is elected uncleanly at "
        "once, Kafka records that this one has recovered; in Quorate it has to recover first",
    ),
    Reason(
        "[^:]*: Kafka's controller fails: ",
        "Kafka's controller fails with UNKNOWN_SERVER_ERROR and resigns; known: its index of "
        "eligible replicas keeps topics that are deleted, and it looks for the directory of a last "
        "known leader that is not a replica any more",
    ),
    Reason(
        "(UpdateFeatures of several|AlterClientQuotas with several errors): message: .*",
        "of several errors, the first is reported, in Kafka in the order of a hash table",
    ),
    Reason(
        "UpdateFeatures of kraft.version: .*",
        "Quorate updates kraft.version and the other features of a request one after the other",
    ),
    Reason(
        "BrokerHeartbeat with a moved directory: records: .*",
        "if a directory that fails has belonged to another broker, Kafka also changes the "
        "partitions that had a replica in it on that broker",
    ),
    Reason(
        "BrokerRegistration after a stop.*",
        "Quorate registers the next process of a broker that may stop at once, Kafka when the "
        "session of the process before has ended",
    ),
    Reason(
        "BrokerRegistration without kraft.version: .*",
        "Kafka rejects a broker that does not support the finalized kraft.version",
    ),
    Reason(
        "AlterPartitionReassignments that replaces one: records: .*",
        "Kafka keeps the replaced target in the lists of added and removed replicas, with which "
        "the reassignment may never end",
    ),
    Reason(
        f"AssignReplicasToDirs {TWICE}: records: .*",
        "a replica that is assigned to a failed directory leaves the ISR: in Kafka, this second "
        "change starts from the state before the first, and may undo it or be left out",
    ),
    Reason(
        "AlterPartitionReassignments that loses the ISR: (records|response): .*",
        "if only added replicas are in sync, Kafka makes the first remaining replica the ISR, "
        "active or not, and its leader does not recover; Quorate elects as in each unclean "
        "election, and rejects the request if no remaining replica is active",
    ),
    Reason(
        "AlterUserScramCredentials of one user twice: .*",
        "Kafka rejects the credentials of two mechanisms for one user in one request",
    ),
    Reason(
        "ElectLeaders: response: replica_election_results has fewer items",
        "if all partitions are asked for, Kafka also lists topics without an election",
    ),
    Reason(
        "CreateTopics of colliding names: .*",
        "Kafka creates topics of one request whose names collide, such as a.b and a_b",
    ),
    Reason(
        "CreateTopics: message: Topic name is invalid: the length of # is longer .*",
        "Quorate shortens a long name in the message",
    ),
    Reason(
        "CreateAcls of an invalid one: response: results.error_code -1/42",
        "Kafka fails with UNKNOWN_SERVER_ERROR, Quorate with INVALID_REQUEST",
    ),
)


def reason_of(difference: Difference) -> Reason | None:
    """The reason of a difference that is deliberate; records may differ for several reasons."""
    kind = difference.kind
    found = next((each for each in REASONS if re.fullmatch(each.pattern, kind)), None)
    parts = CHANGES.split(difference.detail)
    if found is not None or len(parts) == 1:
        return found
    reasons = [reason_of(replace(difference, detail=part)) for part in parts]
    texts = dict.fromkeys(each.text for each in reasons if each is not None)
    return None if None in reasons else Reason(kind, "; ".join(texts))
