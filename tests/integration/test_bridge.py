"""Kafka's protocol at the listener of real controllers, spoken by a socket that plays a broker."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from quorate.bridge.messages import schemas as s
from quorate.common.error_codes import ErrorCode
from quorate.metadata.image.configs import ConfigResourceType
from quorate.records.batch import parse_batches
from quorate.records.metadata import ConfigRecord, encode
from quorate.rpc.client.quorum_client import QuorumClient

from tests.integration.bridge_support import KafkaQuorum
from tests.integration.support import CLUSTER, HOST, Node, until
from tests.processes import listens

BROKER = 1
TOPIC_ID = s.uuid_field(f"{'A' * 21}Q")
IDS = (3001, 3002, 3003)
TIMEOUT_S = 20.0
LONG_MS = 9_000
"""How long a Fetch may wait that is answered without waiting."""
SMALL: dict[str, object] = {
    "internal.metadata.log.segment.bytes": 8 * 1024,
    "metadata.log.max.record.bytes.between.snapshots": 16 * 1024,
    "metadata.max.retention.bytes": 8 * 1024,
}
SECURED: dict[str, object] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
}


class Asker:
    """One connection to a controller's listener. context: None for an unencrypted one."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        self.connection = socket.create_connection((HOST, port), TIMEOUT_S)
        if context is not None:
            self.connection = context.wrap_socket(self.connection, server_hostname=HOST)
        self.stream = self.connection.makefile("rb")

    def close(self) -> None:
        self.stream.close()
        self.connection.close()

    def ask(self, api_key: int, body: Any) -> Any:
        version = body.__version__
        data = s.write_header(api_key, version, 5, "broker") + s.write(body)
        self.connection.sendall(len(data).to_bytes(4, "big") + data)
        size = int.from_bytes(self.stream.read(4), "big")
        return s.read_response(api_key, version, self.stream.read(size))[1]

    def fetch(self, offset: int = 0, epoch: int = 0, **fields: Any) -> Any:
        """The whole answer."""
        version = fields.get("version", 17)
        module = s.request_module(s.FETCH, version)
        known = {"high_watermark": fields["known"]} if "known" in fields else {}
        partition = s.make(
            module.FetchPartition,
            partition=0,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            last_fetched_epoch=fields.get("last_epoch", 0),
            log_start_offset=-1,
            partition_max_bytes=0,
            **known,
        )
        replica = fields.get("replica", BROKER)
        sender: dict[str, Any] = {"replica_id": replica}
        if version >= 15:
            sender = {"replica_state": module.ReplicaState(replica_id=replica)}
        topic = s.make(
            module.FetchTopic,
            topic="__cluster_metadata",
            topic_id=TOPIC_ID,
            partitions=(partition,),
        )
        return self.ask(
            s.FETCH,
            s.make(
                module.FetchRequest,
                cluster_id=fields.get("cluster_id", CLUSTER),
                max_wait=s.milliseconds(fields.get("wait_ms", 500)),
                min_bytes=0,
                max_bytes=fields.get("max_bytes", 1 << 20),
                isolation_level=0,
                topics=(topic,),
                forgotten_topics_data=(),
                **sender,
            ),
        )

    def fetch_snapshot(
        self, offset: int, epoch: int, leader_epoch: int, position: int, version: int = 1
    ) -> Any:
        module = s.request_module(s.FETCH_SNAPSHOT, version)
        partition = module.PartitionSnapshot(
            partition=0,
            current_leader_epoch=leader_epoch,
            snapshot_id=module.SnapshotId(end_offset=offset, epoch=epoch),
            position=position,
        )
        answer = self.ask(
            s.FETCH_SNAPSHOT,
            module.FetchSnapshotRequest(
                cluster_id=CLUSTER,
                replica_id=BROKER,
                max_bytes=1_000,
                topics=(module.TopicSnapshot(name="__cluster_metadata", partitions=(partition,)),),
            ),
        )
        return answer.topics[0].partitions[0]

    def create_topic(self, name: str) -> Any:
        return self.ask(s.CREATE_TOPICS, creation(name))

    def forward(self, name: str, principal: str) -> Any:
        """Create a topic for a client: the answer to it, or the envelope's where that failed."""
        kind, _, user = principal.partition(":")
        who = s.principal_type()(type_=kind, name=user, token_authenticated=False)
        inner = s.write_header(s.CREATE_TOPICS, 7, 9, "client") + s.write(creation(name))
        answer = self.ask(
            s.ENVELOPE,
            s.request_type(s.ENVELOPE, 0)(
                request_data=inner,
                request_principal=b"\0\0" + s.write(who),
                client_host_address=bytes((10, 0, 0, 7)),
            ),
        )
        if int(answer.error_code) != 0:
            return answer
        return s.read_response(s.CREATE_TOPICS, 7, bytes(answer.response_data))[1]


def creation(name: str) -> Any:
    module = s.request_module(s.CREATE_TOPICS, 7)
    topic = module.CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
    )
    return module.CreateTopicsRequest(topics=(topic,), timeout=s.milliseconds(9_000))


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[KafkaQuorum]:
    made = KafkaQuorum(tmp_path, IDS)
    made.format_and_start()
    yield made
    made.kill()


@contextmanager
def one_controller(folder: Path, settings: dict[str, object]) -> Iterator[tuple[Node, int]]:
    """One that leads alone and serves brokers, and its port for those."""
    quorum = KafkaQuorum(folder, IDS[:1], **settings)
    (node,), (port,) = quorum.nodes.values(), quorum.ports.values()
    node.format("--standalone")
    try:
        node.start()
        node.wait_said("leads epoch 1")
        quorum.has_migrated()
        yield node, port
    finally:
        quorum.kill()


def test_a_broker_finds_the_leader_and_reads_the_log(quorum: KafkaQuorum) -> None:
    ports = quorum.ports
    status = quorum.until(
        "the voters' endpoints name both listeners",
        lambda found: all(len(v["endpoints"]) == 2 for v in found["currentVoters"]),
    )
    leader: int = status["leaderId"]
    until("all listen", lambda: all(map(listens, ports.values())))
    quorum.has_migrated()
    follower = next(node for node in IDS if node != leader)

    # Who does not lead names who does, with the endpoint of this listener.
    asker = Asker(ports[follower])
    answer = asker.fetch()
    (partition,) = answer.responses[0].partitions
    assert int(partition.error_code) in (
        ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH
    )  # fmt: skip
    assert partition.current_leader.leader_id == leader
    (endpoint,) = answer.node_endpoints
    assert (endpoint.node_id, endpoint.port) == (leader, ports[leader])
    epoch = partition.current_leader.leader_epoch
    assert int(asker.create_topic("a").topics[0].error_code) == ErrorCode.NOT_CONTROLLER
    asker.close()

    # The leader's bytes are the log's, from the first batch on.
    asker = Asker(ports[leader])
    offset, last_epoch, records = 0, 0, 0
    for _ in range(50):
        (partition,) = asker.fetch(offset, epoch, last_epoch=last_epoch).responses[0].partitions
        assert int(partition.error_code) == 0
        batches = parse_batches(bytes(partition.records or b""))
        if batches:
            assert batches[0].base_offset == offset
            offset, last_epoch = batches[-1].end_offset, batches[-1].epoch
            records += 1
        if partition.high_watermark == offset and records:
            break
    assert 0 < offset == partition.high_watermark
    (partition,) = asker.fetch(offset + 900, epoch, last_epoch=epoch).responses[0].partitions
    diverging = partition.diverging_epoch
    assert (diverging.epoch, diverging.end_offset >= offset) == (epoch, True), "truncate to there"

    # What Kafka's tools ask of a quorum.
    module = s.request_module(s.DESCRIBE_QUORUM, 2)
    wanted = module.TopicData(
        topic_name="__cluster_metadata", partitions=(module.PartitionData(partition_index=0),)
    )
    told = asker.ask(s.DESCRIBE_QUORUM, module.DescribeQuorumRequest(topics=(wanted,)))
    (partition,) = told.topics[0].partitions
    assert (partition.leader_id, partition.leader_epoch) == (leader, epoch)
    assert {v.replica_id for v in partition.current_voters} == set(IDS)
    assert [o.replica_id for o in partition.observers] == [BROKER]
    kafkas = {n.node_id: [e.port for e in n.listeners if e.name == "KAFKA"] for n in told.nodes}
    assert kafkas == {node: [port] for node, port in ports.items()}
    other = module.TopicData(topic_name="a", partitions=(module.PartitionData(partition_index=0),))
    told = asker.ask(s.DESCRIBE_QUORUM, module.DescribeQuorumRequest(topics=(other,)))
    assert int(told.error_code) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    # Neither another cluster's brokers, nor consumers, nor who says that it is a voter.
    wrong = asker.fetch(cluster_id="x" * 22)
    assert int(wrong.error_code) == ErrorCode.INCONSISTENT_CLUSTER_ID
    for replica in (follower, leader, -1):
        refused = asker.fetch(offset, epoch, replica=replica)
        assert int(refused.error_code) == ErrorCode.INVALID_REQUEST
    assert int(asker.fetch_snapshot(1, 1, epoch, 0).error_code) == ErrorCode.SNAPSHOT_NOT_FOUND
    asker.close()


def read_snapshot(asker: Asker, directory: Path) -> tuple[Any, bytes] | None:
    """The id of the snapshot that a Fetch at the beginning names, and its bytes, which are those of
    the file. None if a later one has replaced it meanwhile.
    """
    (partition,) = asker.fetch(0, 1).responses[0].partitions
    snapshot = partition.snapshot_id
    assert snapshot.end_offset > 0
    data = b""
    while True:
        part = asker.fetch_snapshot(snapshot.end_offset, snapshot.epoch, 1, len(data))
        error = int(part.error_code)
        if error == ErrorCode.SNAPSHOT_NOT_FOUND:
            return None
        assert error == 0
        assert part.position == len(data)
        data += bytes(part.unaligned_records)
        if len(data) >= part.size:
            break
    stored = directory / f"{snapshot.end_offset:020}-{snapshot.epoch:010}.checkpoint"
    try:
        expected = stored.read_bytes()
    except FileNotFoundError:
        return None
    assert data == expected
    return snapshot, data


def test_a_log_whose_beginning_is_gone_is_read_from_a_snapshot(tmp_path: Path) -> None:
    with one_controller(tmp_path, SMALL) as (node, port):
        asyncio.run(fill(node.address))
        node.wait_said("the log starts at ")
        asker = Asker(port)
        directory = node.data / "__cluster_metadata-0"
        # The last snapshot of these records may still replace the one that is read.
        snapshot, data = node.wait_until(
            "a snapshot stays", lambda: read_snapshot(asker, directory)
        )
        beyond = asker.fetch_snapshot(snapshot.end_offset, snapshot.epoch, 1, len(data) + 1)
        assert int(beyond.error_code) == ErrorCode.POSITION_OUT_OF_RANGE
        asker.close()


def test_every_version_of_fetch_is_answered(tmp_path: Path) -> None:
    settings: dict[str, object] = {
        "metadata.max.idle.interval.ms": 60_000,
        # The leader lets no Fetch wait for longer than that.
        "controller.quorum.fetch.timeout.ms": 2 * LONG_MS,
    }
    with one_controller(tmp_path, settings) as (_, port):
        asker = Asker(port)
        for version in range(4, 13):
            refused = asker.fetch(0, 1, version=version)
            assert refused.responses == (), "as in Kafka: they cannot name the topic's id"
            error = int(getattr(refused, "error_code", ErrorCode.INVALID_REQUEST))
            assert error == ErrorCode.INVALID_REQUEST
        for version in range(13, 19):
            answer = asker.fetch(0, 1, version=version)
            (partition,) = answer.responses[0].partitions
            assert int(partition.error_code) == 0
            assert parse_batches(bytes(partition.records))[0].base_offset == 0
            assert partition.current_leader.leader_id == IDS[0]
        for wrong in ({"last_epoch": -1}, {"last_epoch": 2}, {"offset": -1}, {"wait_ms": -1}):
            answer = asker.fetch(**{"offset": 0, "epoch": 1, "version": 18} | wrong)
            assert int(answer.responses[0].partitions[0].error_code) == ErrorCode.INVALID_REQUEST

        # Version 18 says what the sender knows: only news is answered without waiting.
        (partition,) = asker.fetch(0, 1, version=18).responses[0].partitions
        end = parse_batches(bytes(partition.records))[-1].end_offset
        until(
            "all is committed",
            lambda: (
                asker.fetch(end, 1, last_epoch=1, version=17).responses[0].partitions[0]
            ).high_watermark == end,
        )  # fmt: skip
        other = Asker(port)
        for known, waits in ((end, True), (-1, False), (0, False), (2**63 - 1, False)):
            began = time.monotonic()
            answer = other.fetch(
                end, 1, last_epoch=1, version=18, known=known, wait_ms=1_500 if waits else LONG_MS
            )
            took_s = time.monotonic() - began
            assert took_s >= 1.0 if waits else took_s < LONG_MS / 1000, known
            assert answer.responses[0].partitions[0].high_watermark == end
            other.close()
            other = Asker(port)  # which has been sent nothing yet
        other.close()
        lacks = asker.fetch_snapshot(1, 1, 1, 0, version=0)
        assert int(lacks.error_code) == ErrorCode.SNAPSHOT_NOT_FOUND
        asker.close()


def test_with_an_authorizer_nobody_forwards_who_is_not_authenticated(tmp_path: Path) -> None:
    with one_controller(tmp_path, SECURED) as (node, port):
        asker = Asker(port)
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        for principal in ("User:bob", "User:admin", "User:ANONYMOUS"):
            assert int(asker.forward("made", principal).error_code) == error
        # It is a super user itself.
        made = asker.create_topic("made").topics[0]
        assert int(made.error_code) == ErrorCode.INVALID_REPLICATION_FACTOR, "no broker is there"
        said = [line for line in node.said().splitlines() if "Envelope from" in line]
        assert len(said) == 1, said
        assert "map KAFKA to SSL, SASL_SSL or SASL_PLAINTEXT in listener" in said[0]
        asker.close()

        # Who is nobody in particular may do nothing unless it is said.
        assert node.stop() == 0
        node.configure({"super.users": "User:admin"})
        node.start()
        until("it listens", lambda: listens(port))
        asker = Asker(port)

        def refused() -> bool:
            # Until the ACLs are loaded nobody knows, and another controller is to be asked.
            return int(asker.fetch().error_code) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

        until("the ACLs are loaded", refused)
        assert int(asker.forward("made", "User:admin").error_code) == error
        assert int(asker.create_topic("a").topics[0].error_code) in (
            error,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )
        asker.close()


def test_without_an_authorizer_brokers_forward_for_everybody(tmp_path: Path) -> None:
    with one_controller(tmp_path, {}) as (_, port):
        asker = Asker(port)
        made = asker.forward("made", "User:bob").topics[0]
        assert int(made.error_code) == ErrorCode.INVALID_REPLICATION_FACTOR, "no broker is there"
        asker.close()


async def fill(address: str) -> None:
    """So much that the log is cut."""
    async with QuorumClient([address]) as client:
        for number in range(300):
            value = f"{number:06d}".ljust(200, ".")
            record = ConfigRecord(ConfigResourceType.BROKER, "", "listeners", value)
            await client.append([(None, encode(record))])
