"""Whether the voters of an archived quorum are gone, so that a new quorum may keep its cluster id.

A voter that answers with the old cluster id is not gone. Nothing proves the opposite: one that does
not answer may start again, and another node may have got its address. The user therefore names each
voter whose directory is erased.

Only voters of the last archived voter set are known here. Those that joined later are not, nor are
observers and brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Any

import grpc

from quorate.backup.archive import verified_chunks
from quorate.backup.batches import batches_in
from quorate.backup.errors import BackupError
from quorate.backup.manifest import ArchivedRun
from quorate.backup.stores import ObjectStore
from quorate.raft.batches import LeaderChange, VotersRecord
from quorate.raft.messages import DescribeQuorumRequest
from quorate.raft.types import Voter
from quorate.records.batch import decode_control_batch
from quorate.rpc.tls import TlsConfig
from quorate.rpc.wire.cluster_id import cluster_in, cluster_metadata
from quorate.rpc.wire.codecs import CODEC_OF
from quorate.rpc.wire.limits import format_address
from quorate.rpc.wire.values import NodeStatusRequest
from quorate.v1 import quorum_pb2

QUESTIONS = (DescribeQuorumRequest(""), NodeStatusRequest())
TIMEOUT_S = 5.0
"""How long to wait for all answers."""


def archived_voters(store: ObjectStore, run: ArchivedRun) -> tuple[Voter, ...]:
    """The voters at the end of a run. BackupError if it names none.

    Without a VotersRecord, as with kraft.version 0, they are those of the last LeaderChange, which
    has no endpoints.
    """
    found: tuple[Voter, ...] = ()
    snapshots = () if run.snapshot is None else (run.snapshot,)
    for each in (*reversed(run.segments), *snapshots):
        elected: tuple[Voter, ...] = ()
        named: tuple[Voter, ...] = ()
        for _, header, batch in batches_in(verified_chunks(store, each)):
            if not header.is_control:
                continue
            for record in decode_control_batch(batch, header):
                if isinstance(record, VotersRecord):
                    named = record.voters.voters
                elif isinstance(record, LeaderChange):
                    elected = tuple(map(Voter, record.voters))
        if named:
            return named
        found = found or elected
    if not found:
        raise BackupError("the backup names no old voters, so its cluster id cannot be kept")
    return found


def check_gone(
    voters: Sequence[Voter], erased: Iterable[str], cluster_id: str, tls: TlsConfig | None
) -> None:
    """Ask the voters at all their endpoints. BackupError if one is running, or is not in `erased`.

    erased: voters as `str(ReplicaKey)` shows them, of which the user says that they are gone.
    """
    answers = _answers(voters, tls)
    for voter in voters:
        for endpoint in voter.endpoints:
            address = format_address(endpoint.host, endpoint.port)
            if answers.get(address) == cluster_id:
                raise BackupError(
                    f"the old voter {voter.key} is running: {address} belongs to cluster "
                    f"{cluster_id}. Stop it and erase its directory, or use a new cluster id"
                )
    keys, stated = {str(voter.key) for voter in voters}, set(erased)
    if unknown := sorted(stated - keys):
        raise BackupError(
            f"{unknown[0]} is not a voter of the backup: these are {', '.join(sorted(keys))}"
        )
    if missing := sorted(keys - stated):
        options = " ".join(f"--erased {key}" for key in missing)
        raise BackupError(
            "to keep the cluster id, erase the directory of each old voter, and confirm it: "
            f"{options}"
        )


def _answers(voters: Sequence[Voter], tls: TlsConfig | None) -> dict[str, str]:
    """The cluster ids that nodes report, by address. All are asked at once."""
    endpoints = {endpoint for voter in voters for endpoint in voter.endpoints}
    found: dict[str, str] = {}
    with ExitStack() as stack:
        calls: list[tuple[str, Any]] = []
        for address in sorted(format_address(each.host, each.port) for each in endpoints):
            channel = stack.enter_context(_channel(address, tls))
            calls += [(address, _asked(channel, request)) for request in QUESTIONS]
        for address, call in calls:
            if reported := _reported(call):
                found[address] = reported
    return found


def _reported(call: Any) -> str:
    """The cluster id in the answer to a call, empty if there is none.

    It precedes all checks of rights. Nodes of earlier releases have it in their status only.
    """
    reported = cluster_in(call.initial_metadata())
    if reported is None and call.exception() is None:
        answer = call.result()
        return answer.cluster_id if isinstance(answer, quorum_pb2.NodeStatusResponse) else ""
    return reported or ""


def _asked(channel: grpc.Channel, request: Any) -> Any:
    """A call in flight. The empty cluster id asks for the node's own."""
    codec = CODEC_OF[type(request)]
    ask = codec.method.stub(channel).future
    return ask(codec.encode_request(request), timeout=TIMEOUT_S, metadata=cluster_metadata(""))


def _channel(address: str, tls: TlsConfig | None) -> grpc.Channel:
    if tls is None:
        return grpc.insecure_channel(address)
    return grpc.secure_channel(address, tls.channel_credentials())
