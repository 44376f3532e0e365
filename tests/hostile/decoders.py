"""Every decoder, with sound inputs to begin from and the exceptions that it may raise."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError, Message
from quorate.common.endpoints import Endpoint
from quorate.log.errors import LogError
from quorate.log.meta_properties import META_PROPERTIES_FILE, MetaProperties
from quorate.log.quorum_state import QuorumStateFile, format_quorum_state
from quorate.raft.batches import KRaftVersion, LeaderChange, VotersRecord
from quorate.raft.errors import MisuseError, ViolationError
from quorate.raft.types import ElectionState, ReplicaKey, Voter, VoterSet
from quorate.records import metadata as m
from quorate.records.batch import (
    BatchProducer,
    build_control_batch,
    build_data_batch,
    iter_batches,
    iter_records,
    parse_batches,
    stamp,
)
from quorate.records.control import decode_control, encode_control
from quorate.records.errors import RecordsError
from quorate.rpc.wire import convert, convert_append
from quorate.rpc.wire.codecs import CODECS
from quorate.spark.decoding import framing
from quorate.spark.decoding.columns import LEDGER, ChunkOrigin, rows
from quorate.spark.errors import DamagedError
from quorate.spark.options import OFFSET_MAX
from quorate.v1 import common_pb2, quorum_pb2, raft_pb2

TOPIC_ID = "kiNBqNGdSkighOqe--JjKw"
KEY = ReplicaKey(1, "A" * 22)
VOTERS = VoterSet.of(
    Voter(ReplicaKey(n, "A" * 20 + f"{n}A"), (Endpoint("CONTROLLER", f"host-{n}", 9093),))
    for n in (1, 2, 3)
)
CONTROL = (LeaderChange(1, (KEY,), (KEY,)), KRaftVersion(1), VotersRecord(VOTERS))
METADATA = (
    m.TopicRecord(name="t", topic_id=TOPIC_ID),
    m.PartitionRecord(partition_id=1, topic_id=TOPIC_ID, replicas=(1, 2), isr=(1,), leader=1),
    m.PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, isr=(1, 2), leader=2),
    m.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1"),
    m.FeatureLevelRecord(name="metadata.version", feature_level=20),
    m.ClientQuotaRecord(entity=(m.QuotaEntity("user", None),), key="rate", value=1.5),
    m.UserScramCredentialRecord(name="u", mechanism=1, salt=b"s", stored_key=b"k", iterations=4096),
    m.RegisterBrokerRecord(
        broker_id=1, incarnation_id=TOPIC_ID, broker_epoch=1,
        end_points=(m.RegisteredEndpoint(name="P", host="h", port=9092),),
        features=(m.RegisteredFeature(name="metadata.version", max_supported_version=20),),
    ),
    m.AccessControlEntryRecord(id=TOPIC_ID, resource_name="r", principal="User:a", host="*"),
    m.ProducerIdsRecord(next_producer_id=1000),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Decoder:
    """refusals: what it may raise. corpus: sound inputs."""

    name: str
    decode: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...]
    corpus: tuple[bytes, ...]


def _batches() -> tuple[bytes, ...]:
    data = build_data_batch([(b"k", b"v" * 30), (b"", b"w"), (None, m.encode(METADATA[0]))], 1)
    stamp(data, 5, 3)
    control = build_control_batch(CONTROL, 2)
    stamp(control, 8, 3)
    return bytes(data), bytes(control), bytes(data) + bytes(control)


def _read_batches(data: bytes) -> None:
    for header, view in iter_batches(data):
        for record in iter_records(view, header):
            if record.key is None and record.value is not None and m.peek(record.value):
                m.decode(record.value)


def _ledger() -> tuple[bytes, ...]:
    data = build_data_batch([(None, m.encode(record)) for record in METADATA], 1)
    stamp(data, 5, 3)
    return (*_batches(), bytes(data))


def _read_ledger(data: bytes) -> None:
    chunk = framing.whole(data)
    rows(LEDGER, chunk, ChunkOrigin("1", "log"), 0, OFFSET_MAX, verify=False).validate(full=True)


def _read_control(data: bytes) -> None:
    size = data[0] if data else 0
    decode_control(data[1 : 1 + size], data[1 + size :])


def _control() -> tuple[bytes, ...]:
    pairs = [encode_control(record) for record in CONTROL]
    return tuple(bytes([len(key)]) + key + value for key, value in pairs)


def _read_metadata(data: bytes) -> None:
    m.to_json(m.decode(data))


_FOLDER = Path(tempfile.mkdtemp(prefix="hostile-"))


def _read_quorum_state(data: bytes) -> None:
    (_FOLDER / "quorum-state").write_bytes(data)
    QuorumStateFile(_FOLDER).read()


def _read_meta_properties(data: bytes) -> None:
    (_FOLDER / META_PROPERTIES_FILE).write_bytes(data)
    MetaProperties.read(_FOLDER)


def _protobuf(kind: type[Message], decode: Callable[..., object], *sound: Message) -> Decoder:
    def read(data: bytes) -> None:
        message = kind()
        message.ParseFromString(data)
        decode(message)

    corpus = tuple(each.SerializeToString() for each in sound)
    return Decoder(kind.__name__, read, (DecodeError, ViolationError, MisuseError), corpus)


def _wire() -> list[Decoder]:
    key = common_pb2.ReplicaKey(id=1, directory_id=b"d" * 16)
    place = common_pb2.Endpoint(name="C", host="h", port=9093)
    leader = common_pb2.CurrentLeader(epoch=3, id=1, endpoints=[place])
    return [
        _protobuf(
            raft_pb2.VoteRequest, CODECS["Vote"].decode_request,
            raft_pb2.VoteRequest(cluster_id="c" * 22, epoch=3, candidate=key, voter=key),
        ),
        _protobuf(
            raft_pb2.FetchRequest, convert.decode_fetch_request,
            raft_pb2.FetchRequest(cluster_id="c" * 22, replica=key, epoch=3, offset=9),
        ),
        _protobuf(
            raft_pb2.FetchResponse, convert.decode_fetch_response,
            raft_pb2.FetchResponse(current_leader=leader, records=_batches()[2], records_from=5),
        ),
        _protobuf(
            raft_pb2.BeginQuorumEpochRequest, CODECS["BeginQuorumEpoch"].decode_request,
            raft_pb2.BeginQuorumEpochRequest(cluster_id="c" * 22, leader=key, epoch=2, voter=key),
        ),
        _protobuf(
            raft_pb2.EndQuorumEpochRequest, CODECS["EndQuorumEpoch"].decode_request,
            raft_pb2.EndQuorumEpochRequest(cluster_id="c" * 22, leader=key, epoch=2),
        ),
        _protobuf(raft_pb2.FetchSnapshotRequest, CODECS["FetchSnapshot"].decode_request),
        _protobuf(raft_pb2.FetchSnapshotResponse, CODECS["FetchSnapshot"].decode_response),
        _protobuf(raft_pb2.UpdateVoterRequest, CODECS["UpdateVoter"].decode_request),
        _protobuf(
            quorum_pb2.AddVoterRequest, CODECS["AddVoter"].decode_request,
            quorum_pb2.AddVoterRequest(cluster_id="c" * 22, voter=key, endpoints=[place]),
        ),
        _protobuf(quorum_pb2.RemoveVoterRequest, CODECS["RemoveVoter"].decode_request),
        _protobuf(
            quorum_pb2.DescribeQuorumResponse, CODECS["DescribeQuorum"].decode_response,
            quorum_pb2.DescribeQuorumResponse(
                current_leader=leader,
                voters=[quorum_pb2.ReplicaState(replica=key, log_end_offset=4, endpoints=[place])],
            ),
        ),
        _protobuf(quorum_pb2.UpdateFeaturesRequest, CODECS["UpdateFeatures"].decode_request),
        _protobuf(quorum_pb2.FormatRequest, CODECS["Format"].decode_request),
        _protobuf(
            quorum_pb2.AppendRequest, convert_append.decode_append_request,
            quorum_pb2.AppendRequest(
                correlation_id=1, records=[quorum_pb2.Record(key=b"k", value=b"v")]
            ),
            convert_append.encode_append_request(
                2, [(b"k", b"v"), (None, b""), (b"", b"w")] * 2, 5
            ),
        ),
        _protobuf(
            quorum_pb2.AppendRequest, convert_append.decode_producer,
            convert_append.encode_append_request(
                3, [(b"k", b"v")], 5, producer=BatchProducer(7, 0, 2**31 - 1)
            ),
        ),
        _protobuf(
            quorum_pb2.OpenProducerRequest, CODECS["OpenProducer"].decode_request,
            quorum_pb2.OpenProducerRequest(cluster_id="c" * 22, expiration_ms=1_000),
        ),
        _protobuf(quorum_pb2.OpenProducerResponse, CODECS["OpenProducer"].decode_response),
        _protobuf(quorum_pb2.ReadRequest, CODECS["Read"].decode_request),
        _protobuf(quorum_pb2.ReadResponse, CODECS["Read"].decode_response),
    ]  # fmt: skip


def decoders() -> list[Decoder]:
    """All of them, ready: the first call in a new installation compiles loops."""
    for data in _ledger():
        _read_ledger(data)
    state = format_quorum_state(ElectionState(7, 1, KEY), 1)
    properties = (
        b"version=1\nnode.id=1\ncluster.id=" + b"c" * 22 + b"\ndirectory.id=" + b"A" * 20 + b"1A"
    )
    return [
        Decoder("batches", _read_batches, (RecordsError,), _batches()),
        Decoder("parse_batches", parse_batches, (RecordsError,), _batches()),
        Decoder("ledger", _read_ledger, (DamagedError,), _ledger()),
        Decoder("control", _read_control, (RecordsError,), _control()),
        Decoder("metadata", _read_metadata, (RecordsError,), tuple(map(m.encode, METADATA))),
        Decoder("quorum-state", _read_quorum_state, (LogError,), (state, json.dumps([1]).encode())),
        Decoder("meta.properties", _read_meta_properties, (LogError,), (properties,)),
        *_wire(),
    ]
