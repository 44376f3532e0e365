"""The protocols over which transcripts run: every message is encoded and decoded.

`GrpcWire` and `KafkaWire` write each message to bytes and read it back, with the code of both ends.
The value that arrives must be the one that was sent, less what the protocol does not carry
(`received` of each), and the transcript must come out the same.

The controllers' listener of the transcripts stands for the listener of either protocol. Over
Kafka's protocol, ApiVersions and the requests of administrators go over gRPC, as in a controller.
Transcripts spell directory ids as letters; messages carry UUIDs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any, Final

from quorate.bridge.messages import schemas as s
from quorate.bridge.messages.peer_messages import (
    API_KEYS,
    ResponseReader,
    known_endpoints,
    read_response,
    write_request,
)
from quorate.bridge.requests.forwarding import FORWARDED
from quorate.bridge.requests.raft_requests import WHOLE_ERRORS, read_request, write_response
from quorate.bridge.requests.replication import (
    PEER_CLIENT_ID,
    bridge_endpoint,
    read_fetch,
    read_fetch_snapshot,
    respond,
    write_fetched,
    write_fetched_snapshot,
)
from quorate.common.error_codes import ErrorCode
from quorate.raft import messages as m
from quorate.raft.batches import Batch, ControlRecord, LeaderChange
from quorate.raft.types import ReplicaKey, VoterSet
from quorate.records.batch import build_control_batch, build_data_batch, parse_batches, stamp
from quorate.rpc.wire.codecs import CODEC_OF

from tests.scenarios.arguments import LISTENER
from tests.scenarios.wire import Wire

NO_LEADER: Final = m.CurrentLeader(0)


class GrpcWire(Wire):
    """The messages of `proto/quorate/v1`. UpdateKRaftVersion is a part of UpdateFeatures, which the
    quorum does not see.
    """

    def request(self, request: Any, *, is_peers: bool) -> Any:
        codec = CODEC_OF.get(type(request))
        if codec is None:
            return request
        message = codec.encode_request(_with_uuids(request))
        read = codec.decode_request(type(message).FromString(message.SerializeToString()))
        return _checked(_with_letters(read), request)

    def response(self, request: Any, response: Any, voters: VoterSet, *, is_peers: bool) -> Any:
        codec = CODEC_OF.get(type(request))
        if codec is None or _is_unnamed(response):
            return response
        message: Any = codec.encode_response(_with_uuids(response))
        if isinstance(response, m.FetchResponse):
            message.records = _records(response.batches)
        read = codec.decode_response(type(message).FromString(message.SerializeToString()))
        return _checked(_with_batches(_with_letters(read), response), self.received(response))

    @staticmethod
    def received(response: Any) -> Any:
        """The response without the core's hint to the owner of the files."""
        if isinstance(response, m.FetchResponse | m.FetchSnapshotResponse):
            return replace(response, max_bytes=0)
        return response


class KafkaWire(GrpcWire):
    """Kafka's messages, in the highest versions. Of a request, they do not carry:

    - the endpoints of the sender of a Fetch;
    - the directory of a leader that begins or ends an epoch;
    - the timeout of RemoveVoter, nor that it is forced;
    - a limit of 0 bytes: a snapshot is read in steps of at least one.

    Of a response, they do not carry:

    - texts, except in those to AddVoter and RemoveVoter, and where the log's next records are;
    - the leader, in errors of a request as a whole and in responses to AddVoter and RemoveVoter;
      elsewhere its other endpoints, which the receiver looks up among the voters that it knows;
    - anything else beside an error.
    """

    def request(self, request: Any, *, is_peers: bool) -> Any:
        if not is_peers or type(request) not in API_KEYS:
            return super().request(request, is_peers=is_peers)
        call = _call(request)
        match request:
            case m.FetchRequest():
                read: Any = read_fetch(call, "", -1)
            case m.FetchSnapshotRequest():
                read = read_fetch_snapshot(call, "")
            case m.AddVoterRequest() | m.RemoveVoterRequest():
                read = FORWARDED[call.api_key].read(call.body)
            case _:
                read = read_request(call, ReplicaKey(0))
        return _checked(_with_letters(read), self.received_request(request))

    @staticmethod
    def received_request(request: Any) -> Any:
        """The request without what Kafka's messages do not carry."""
        match request:
            case m.FetchRequest():
                return replace(request, endpoints=())
            case m.BeginQuorumEpochRequest() | m.EndQuorumEpochRequest():
                return replace(request, leader=ReplicaKey(request.leader.id))
            case m.FetchSnapshotRequest():
                return replace(request, max_bytes=max(1, request.max_bytes))
            case m.RemoveVoterRequest():
                return m.RemoveVoterRequest(request.cluster_id, request.voter)
        return request

    def response(self, request: Any, response: Any, voters: VoterSet, *, is_peers: bool) -> Any:
        if not is_peers or type(request) not in API_KEYS:
            return super().response(request, response, voters, is_peers=is_peers)
        call = _call(request)
        answered = _with_uuids(response)
        match response:
            case m.FetchResponse() | m.FetchSnapshotResponse() if response.error in WHOLE_ERRORS:
                body = respond(call, response.error)
            case m.FetchResponse():
                records = [_records(response.batches)]
                body = write_fetched(call, answered, records, LISTENER, is_quorate=True)
            case m.FetchSnapshotResponse():
                body = write_fetched_snapshot(call, answered, LISTENER)
            case _ if isinstance(request, m.AddVoterRequest | m.RemoveVoterRequest):
                body = _changed(call, answered)
            case _:
                body = write_response(call, answered, LISTENER)
        _, body = read_response(call.api_key, call.version, s.write_response(1, body))
        reader = ResponseReader(
            LISTENER, lambda replica_id, named: known_endpoints(voters, replica_id, named)
        )
        read = _with_batches(_with_letters(reader.read(_with_uuids(request), body)), response)
        return _checked(read, self.received_response(request, response, voters))

    @staticmethod
    def received_response(request: Any, response: Any, voters: VoterSet) -> Any:
        """The response without what Kafka's messages do not carry."""
        error = response.error
        if isinstance(request, m.AddVoterRequest | m.RemoveVoterRequest):
            text = "" if error is ErrorCode.NOT_LEADER_OR_FOLLOWER else response.message
            return m.AdminResponse(error, NO_LEADER, text)
        leader = _known(response.leader, voters)
        if error in WHOLE_ERRORS:
            leader = NO_LEADER
        if error is not ErrorCode.NONE:
            return type(response)(error, leader)
        match response:
            case m.FetchResponse():
                return replace(response, leader=leader, records_from=None, max_bytes=0, message="")
            case m.FetchSnapshotResponse():
                return replace(response, leader=leader, max_bytes=0, message="")
        return replace(response, leader=leader, message="")


WIRES: Final = {"values": Wire, "grpc": GrpcWire, "kafka": KafkaWire}

_NOT_SHOWN: Final = (
    (r"\bled by (\d+), not by (\d+)-\w+", r"led by \1, not by \2"),
    (r"(cannot be had:) this replica is \S+, not \w+(-\w+)?", r"\1 INVALID_VOTER_KEY"),
    (r"^(.* UpdateVoter was refused: \w+) .*$", r"\1"),
)
"""How transcripts show what `KafkaWire` does not carry: the directory of another leader, and texts
of peers, in place of which there is the error's name.
"""
_OBSERVER: Final = re.compile(r"(  observer (\d+)\w* end=.* at ).*")


def shown(lines: Iterable[str]) -> Iterator[str]:
    """The lines of a transcript as they come out over Kafka's protocol.

    A leader does not know the endpoints of observers, unless it is one itself.
    """
    leader = ""
    for line in lines:
        named = re.search(r" leader=(\S+)", line)
        leader = named[1] if named else leader
        observer = _OBSERVER.fullmatch(line)
        if observer and observer[2] != leader:
            line = f"{observer[1]}-"  # noqa: PLW2901
        for pattern, text in _NOT_SHOWN:
            line = re.sub(pattern, text, line)  # noqa: PLW2901
        yield line


def _checked(read: Any, expected: Any) -> Any:
    assert read == expected, f"read {read}, expected {expected}"
    return read


def _is_unnamed(response: Any) -> bool:
    """Whether it is a response to ApiVersions like those of Kafka's nodes, which no node sends over
    gRPC.
    """
    return isinstance(response, m.ApiVersionsResponse) and response.replica is None


# --- Kafka's messages -----------------------------------------------------------------------------


def _call(request: Any) -> s.Call:
    """A request as its receiver decodes it."""
    api_key = API_KEYS[type(request)]
    version = s.SERVED[api_key][1]
    body = s.write(write_request(_with_uuids(request), version))
    return s.read_call(s.write_header(api_key, version, 1, PEER_CLIENT_ID) + body)


def _changed(call: s.Call, response: m.AdminResponse) -> Any:
    """A response to AddVoter or RemoveVoter, as `bridge.exchange` answers."""
    exchange = FORWARDED[call.api_key]
    module = s.response_module(call.api_key, call.version)
    if response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        response = exchange.fail(None, ErrorCode.NOT_CONTROLLER, "")
    return exchange.write(module, response)


def _known(leader: m.CurrentLeader, voters: VoterSet) -> m.CurrentLeader:
    """A leader as the receiver of a response knows it."""
    endpoint = bridge_endpoint(leader.endpoints, LISTENER)
    if leader.id is None or endpoint is None:
        return m.CurrentLeader(leader.epoch, leader.id)
    return replace(leader, endpoints=known_endpoints(voters, leader.id, endpoint))


# --- records --------------------------------------------------------------------------------------


def _records(batches: tuple[Batch, ...]) -> bytes:
    return b"".join(map(_encoded, batches))


def _encoded(batch: Batch) -> bytes:
    if batch.control:
        data = build_control_batch(_with_uuids(batch.control), 0)
    else:
        value = str(batch.data).encode()
        count = batch.last_offset - batch.base_offset + 1
        data = build_data_batch([(None, value)] * count, 0)
    stamp(data, batch.base_offset, batch.epoch)
    return bytes(data)


def _with_batches(read: Any, sent: Any) -> Any:
    """The response with the batches that were sent, of which the records that were read must be.

    A transcript's disk compares batches, and a LeaderChange does not contain directories.
    """
    if not isinstance(read, m.FetchResponse):
        return read
    (*expected,) = map(_bare, parse_batches(_records(sent.batches)))
    assert [_bare(batch) for batch in read.batches] == expected
    for batch, parsed in zip(sent.batches, read.batches, strict=True):
        positions = [(e.base_offset, e.last_offset, e.epoch) for e in (batch, parsed)]
        assert positions[0] == positions[1]
        control = tuple(map(_without_directories, batch.control))
        assert tuple(map(_without_directories, _with_letters(parsed.control))) == control
    return replace(read, batches=sent.batches)


def _bare(batch: Batch) -> Batch:
    data: Any = batch.data
    return replace(batch, data=bytes(data))


def _without_directories(record: ControlRecord) -> ControlRecord:
    if not isinstance(record, LeaderChange):
        return record
    voters, granting = (
        tuple(ReplicaKey(key.id) for key in keys) for keys in (record.voters, record.granting)
    )
    return replace(record, voters=voters, granting=granting)


# --- directories ----------------------------------------------------------------------------------


def _with_uuids(value: Any) -> Any:
    """A value with UUIDs in place of a transcript's letters."""
    return _respelled(value, lambda letter: f"Z{letter}{'A' * 20}")


def _with_letters(value: Any) -> Any:
    return _respelled(value, lambda uuid: uuid[1])


def _respelled(value: Any, spell: Callable[[str], str]) -> Any:
    if isinstance(value, ReplicaKey):
        known = value.directory_id
        return value if known is None else ReplicaKey(value.id, spell(known))
    if isinstance(value, tuple):
        return tuple(_respelled(each, spell) for each in value)
    changes = {}
    for name in _field_names(type(value)):
        old = getattr(value, name)
        changed = _respelled(old, spell)
        if changed is not old and changed != old:
            changes[name] = changed
    return replace(value, **changes) if changes else value


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    """The fields of a value that may contain directories; none for what is no such value."""
    if kind is Batch or not is_dataclass(kind):
        return ()
    return tuple(field.name for field in fields(kind) if field.init)
