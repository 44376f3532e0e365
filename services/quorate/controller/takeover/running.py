"""Describes a running Kafka quorum, by Kafka's protocol.

The requests are ApiVersions, DescribeCluster and DescribeQuorum, to controllers or brokers.
Source: KIP-584, KIP-595, KIP-853, KIP-919.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quorate.bridge.messages import schemas as s
from quorate.bridge.peers.client import KafkaClient, KafkaClientError
from quorate.bridge.requests.cluster import BROKERS, CONTROLLERS
from quorate.common.config_types import Address
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.features import KRAFT_VERSION
from quorate.common.identifiers import ZERO_UUID
from quorate.log.offset_files import METADATA_PARTITION, METADATA_TOPIC
from quorate.raft.types import ReplicaKey, Voter, VoterSet
from quorate.rpc.tls import TlsConfig

__all__ = ["KafkaClientError", "RunningQuorum", "describe"]


@dataclass(frozen=True, slots=True)
class RunningQuorum:
    """A running quorum of Kafka, as its nodes describe it."""

    cluster_id: str
    leader_id: int
    voters: VoterSet
    """The voters, without endpoints if the quorum is older than 3.9."""
    levels: Mapping[str, int]
    """The finalized features, kraft.version apart."""
    kraft_version: int


async def describe(
    addresses: Sequence[Address], tls: TlsConfig | None, *, controllers: bool, timeout_s: float
) -> RunningQuorum:
    """Ask the nodes in order until one knows the leader. Raises KafkaClientError.

    controllers: whether the addresses are of controllers.
    """
    reasons = []
    for address in addresses:
        try:
            async with KafkaClient(address, tls, timeout_s) as client:
                return await _describe(client, controllers=controllers)
        except KafkaClientError as error:
            reasons.append(str(error))
        except OSError as error:
            raise KafkaClientError(f"the TLS files cannot be read: {error}") from None
    raise KafkaClientError("; ".join(reasons))


async def _describe(client: KafkaClient, *, controllers: bool) -> RunningQuorum:
    kind = CONTROLLERS if controllers else BROKERS
    cluster = await client.ask(
        s.DESCRIBE_CLUSTER,
        1 if controllers else 0,
        include_cluster_authorized_operations=False,
        endpoint_type=kind,
    )
    _check(cluster.error_code, cluster.error_message, "DescribeCluster")
    low, high = client.versions.get(s.DESCRIBE_QUORUM, (0, 0))
    module = s.request_module(s.DESCRIBE_QUORUM, max(low, min(2, high)))
    partition = module.PartitionData(partition_index=METADATA_PARTITION)
    topic = module.TopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
    quorum = await client.ask(s.DESCRIBE_QUORUM, 2, topics=(topic,))
    _check(quorum.error_code, getattr(quorum, "error_message", None), "DescribeQuorum")
    ((found,),) = (each.partitions for each in quorum.topics)
    _check(found.error_code, getattr(found, "error_message", None), "DescribeQuorum")
    places = {
        node.node_id: tuple(
            Endpoint(each.name.upper(), each.host, each.port) for each in node.listeners
        )
        for node in getattr(quorum, "nodes", ())
    }
    voters = VoterSet.of(
        Voter(_key(each), places.get(each.replica_id, ())) for each in found.current_voters
    )
    versions = client.api_versions
    levels = {each.name: each.max_version_level for each in versions.finalized_features}
    return RunningQuorum(
        cluster.cluster_id,
        found.leader_id,
        voters,
        {name: level for name, level in levels.items() if name != KRAFT_VERSION},
        levels.get(KRAFT_VERSION, int(any(v.key.directory_id for v in voters))),
    )


def _key(state: object) -> ReplicaKey:
    directory = s.uuid_text(getattr(state, "replica_directory_id", None))
    replica_id = int(getattr(state, "replica_id"))  # noqa: B009 - kio's classes differ by version
    return ReplicaKey(replica_id, None if directory == ZERO_UUID else directory)


def _check(code: int, message: str | None, request: str) -> None:
    if int(code):
        try:
            name = ErrorCode(int(code)).name
        except ValueError:
            name = f"error {int(code)}"
        raise KafkaClientError(f"{request}: {name}{': ' if message else ''}{message or ''}")
