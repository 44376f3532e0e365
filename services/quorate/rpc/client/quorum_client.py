"""The client library: administration, appends and reads, at the current leader.

Owns a client's channels, its knowledge of the leader, and its append stream. `routing` defines how
the client finds the leader and what it retries, `appending` how values share a batch, `reading` how
a read resumes after a failure, `watching` how reads that follow the log share streams.

Rules:
1. Every call ends: with a response, or with a `ClientError` once its timeout has passed.
2. Reads and descriptions are retried freely. A change of the quorum is retried after a broken
   connection, since it is idempotent: if the voter is there already, or gone already, the request
   has succeeded. An append is retried in a producer session only (see `idempotent`).
3. A leader that is silent while a call waits for it (see `silence`) is treated like a broken
   connection.
4. Every call names the cluster, and nodes of another one reject it (see `cluster`).

Source: KIP-853, "Admin client"; KIP-836 and KIP-584 for the descriptions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, get_args

from quorate.applications.sessions import EXPIRATION_MS
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.features import METADATA_VERSION
from quorate.metadata.metadata_version import APPLICATION_VERSION
from quorate.raft.errors import MisuseError
from quorate.raft.messages import (
    AddVoterRequest,
    AdminResponse,
    DescribeQuorumRequest,
    RemoveVoterRequest,
    TransferLeadershipRequest,
)
from quorate.raft.types import ReplicaKey, VoterSet
from quorate.records.batch import Record
from quorate.rpc.client.appending import BATCHES_IN_FLIGHT_MAX, Appender, Coalescer
from quorate.rpc.client.cluster import check_not_foreign
from quorate.rpc.client.following import StreamOpener
from quorate.rpc.client.framed_call import FramedCalls
from quorate.rpc.client.idempotent import IdempotentAppender
from quorate.rpc.client.leader_client import ANSWER_SLACK_MS, LeaderClient, timeout_or
from quorate.rpc.client.reading import LogReader
from quorate.rpc.client.routing import Address, now_ms
from quorate.rpc.client.watching import LogFollower
from quorate.rpc.errors import (
    AdminError,
    ClientError,
    NoLeaderError,
    OffsetCompactedError,
    OutcomeUnknownError,
    ReadBrokenError,
    TransportError,
    TransportKind,
    UnreachableError,
)
from quorate.rpc.software import grpc_endpoints
from quorate.rpc.wire.codecs import CODEC_OF
from quorate.rpc.wire.limits import format_address, parse_address
from quorate.rpc.wire.values import (
    OPAQUE_KEY,
    AppendResult,
    DescribeFeaturesRequest,
    DescribeFeaturesResponse,
    FormatRequest,
    FormatResponse,
    LogOffsets,
    NodeStatus,
    NodeStatusRequest,
    OpaqueRecord,
    OpenProducerRequest,
    OpenProducerResponse,
    QuorumDescription,
    ReadRequest,
    UpdateFeaturesRequest,
    UpgradeType,
)

__all__ = [
    "AdminError",
    "ClientError",
    "NoLeaderError",
    "OffsetCompactedError",
    "OutcomeUnknownError",
    "QuorumClient",
    "ReadBrokenError",
    "UnreachableError",
]

Transport = Literal["auto", "grpc"]
TRANSPORTS: tuple[Transport, ...] = get_args(Transport)

STATUS_TIMEOUT_MS = 1_000
"""For requests that a node answers at once from its own state."""
LEADER_WAIT_MS = 1_500
"""How long a description waits for the leader's view before it falls back to another node's."""
DESCRIBE_PAUSE_MS = 100
REGISTRATION_PAUSE_MS = 200
"""How long to wait for the voters' registrations before the next attempt."""


@dataclass(kw_only=True, eq=False, repr=False)
class QuorumClient(LeaderClient):
    """A client of one quorum; `LeaderClient` has its other options.

    Example:
        async with quorate.Client(["controller-1:9093"]) as client:
            offset = await client.append_value(b"committed by a majority, or not at all")
            async for record in client.read(offset):
                print(record.offset, record.value)
    """

    producer_expiration_ms: int = EXPIRATION_MS
    """How long the quorum remembers which appends of this client it has, after the last one; from a
    second to a week.
    """

    transport: Transport = "auto"
    """How appends are sent: in frames without gRPC to nodes that take them, which costs both sides
    less, or over gRPC only. Everything else is sent over gRPC.
    """

    TIMEOUT_ADVICE: ClassVar[str] = "; the request may still succeed"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.transport not in TRANSPORTS:
            raise MisuseError(f'transport is {self.transport!r}: it must be "auto" or "grpc"')
        framed_calls = None
        if self.transport == "auto":
            framed_calls = FramedCalls(self._channels, self.tls, self.limits)
        self._appender = Appender(self._search, self._channels, self.tracing, framed_calls)
        self._reader = LogReader(self._search, self._channels)
        opener = StreamOpener(self._reader, self._route, self._channels)
        self._follower = LogFollower(opener, self.request_timeout_ms)
        self._producer = IdempotentAppender(self._appender, self._search, self._open_producer)
        self._coalescer = Coalescer(
            lambda records: self._producer.append(records, self.request_timeout_ms)
        )
        self._batches = asyncio.Semaphore(BATCHES_IN_FLIGHT_MAX)

    async def close(self) -> None:
        """Close all connections. Appends in flight end with OutcomeUnknownError."""
        await self._producer.close()
        await self._appender.close()
        await self._coalescer.close()
        await super().close()
        await self._follower.close()

    # --- the quorum -------------------------------------------------------------------------------

    async def describe_quorum(self) -> QuorumDescription:
        """The leader's view; without a leader, the view with the highest epoch.

        Takes about two seconds at most if a node answers or all connections fail, else up to
        `request_timeout_ms`. Raises UnreachableError if no node answers; AdminError.
        """
        started = now_ms()
        attempts: dict[str, str] = {}
        best: QuorumDescription | None = None
        while True:
            slow: set[str] = set()
            for view in await self._views(attempts, slow):
                if view.is_leaders_view:
                    return view
                if best is None or view.response.leader.epoch >= best.response.leader.epoch:
                    best = view
            # A node that is connected but late may answer the next request.
            is_waiting = best is None and bool(slow)
            wait_ms = self.request_timeout_ms if is_waiting else LEADER_WAIT_MS
            if now_ms() - started >= min(wait_ms, self.request_timeout_ms):
                break
            await asyncio.sleep(DESCRIBE_PAUSE_MS / 1000)
        if best is None:
            check_not_foreign(attempts)
            raise UnreachableError(attempts)
        return best

    async def _views(self, attempts: dict[str, str], slow: set[str]) -> list[QuorumDescription]:
        """The views of all known nodes, requested at once, then of the leaders that they name.

        Adds the other nodes to `attempts`, and those that did not answer in time also to `slow`.
        """
        asked: set[Address] = set()
        views: list[QuorumDescription] = []
        wanted = self._route.order()
        while wanted and not any(view.is_leaders_view for view in views):
            asked.update(wanted)
            asking = (self._view(address, attempts, slow) for address in wanted)
            answers = await asyncio.gather(*asking)
            found = [view for view in answers if view is not None]
            views += found
            named: list[Address] = []
            for view in found:
                named += self._route.learn(view.response.leader)
                voters = (voter.endpoints for voter in view.response.voter_set)
                self._route.learn_nodes(grpc_endpoints(voters))
            wanted = [address for address in dict.fromkeys(named) if address not in asked]
        return views

    async def _view(
        self, address: Address, attempts: dict[str, str], slow: set[str]
    ) -> QuorumDescription | None:
        shown = format_address(*address)
        request = DescribeQuorumRequest(self._cluster.id)
        try:
            status, response = await asyncio.gather(
                self._status(address),
                self._unary(address, request, STATUS_TIMEOUT_MS),
            )
            self._cluster.learn(shown, status.cluster_id)
        except TransportError as error:
            code, _, text = error.text.partition(" ")
            if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED.name:
                raise AdminError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, text) from None
            attempts[shown] = error.text
            if error.kind is TransportKind.TIMEOUT:
                slow.add(shown)
            return None
        if response.error not in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            attempts[shown] = f"{response.error.name} {response.message}".rstrip()
            return None
        if response.error is ErrorCode.NONE:
            self._route.confirm(address, response.leader.epoch)
        return QuorumDescription(status.cluster_id, shown, response)

    async def add_voter(
        self,
        voter: ReplicaKey,
        endpoints: Sequence[Endpoint],
        *,
        timeout_ms: int | None = None,
        ack_when_committed: bool = True,
    ) -> None:
        """Make a replica a voter; returns after commit.

        ack_when_committed: False returns once the leader has appended the change. Raises
        AdminError, NoLeaderError, UnreachableError.
        """
        request = AddVoterRequest(
            self._cluster.id, voter, tuple(endpoints), ack_when_committed=ack_when_committed
        )
        await self._change(
            request,
            timeout_ms,
            {ErrorCode.DUPLICATE_VOTER: lambda voters: voter in voters},
        )

    async def remove_voter(
        self, voter: ReplicaKey, *, timeout_ms: int | None = None, force: bool = False
    ) -> None:
        """Remove a replica from the voter set; returns after commit. Raises as `add_voter`.

        force: remove it even if the remaining voters that fetch are no majority; nothing commits
        then until enough of them come back. Without it, AdminError(REQUEST_TIMED_OUT).
        """
        await self._change(
            RemoveVoterRequest(self._cluster.id, voter, force=force),
            timeout_ms,
            {ErrorCode.VOTER_NOT_FOUND: lambda voters: voters.get(voter.id) is None},
        )

    async def transfer_leadership(
        self, target: ReplicaKey, *, timeout_ms: int | None = None
    ) -> None:
        """Transfer leadership to another voter; returns once it leads. Raises as `add_voter`."""
        await self._change(TransferLeadershipRequest(self._cluster.id, target), timeout_ms)

    async def describe_features(self) -> DescribeFeaturesResponse:
        """The features with their supported and finalized levels. Raises as `add_voter`."""
        request = DescribeFeaturesRequest(self._cluster.id)

        async def call(address: Address, left_ms: float) -> DescribeFeaturesResponse:
            answer: DescribeFeaturesResponse = await self._unary(address, request, left_ms)
            return answer

        answer, _ = await self.ask_leader(CODEC_OF[DescribeFeaturesRequest].method, call, None)
        if answer.error is not ErrorCode.NONE:
            raise AdminError(answer.error, answer.message)
        return answer

    async def update_features(
        self,
        feature: str,
        level: int,
        *,
        upgrade_type: UpgradeType = UpgradeType.UPGRADE,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Finalize the level of a feature; returns after commit. Raises as `add_voter`."""
        request = UpdateFeaturesRequest(
            self._cluster.id, feature, level, upgrade_type, validate_only
        )
        await self._change(request, timeout_ms)
        if feature == APPLICATION_VERSION:
            self._producer.level_changed()

    async def finalize_application_version(
        self, level: int = 1, *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> None:
        """Finalize a level of application.version; returns after commit. Raises as `add_voter`.

        Appends with conditions and values that are None need level 1. Every controller must have a
        release that supports it. A quorum without metadata gets the latest metadata.version first,
        and this method waits until the voters have registered. Level 0 ends it again.

        validate_only: change nothing. What voters support is then checked only if they have
        registered, so not in a quorum without metadata.
        """
        kind = UpgradeType.UPGRADE if level else UpgradeType.SAFE_DOWNGRADE
        deadline_ms = now_ms() + timeout_or(timeout_ms, self.request_timeout_ms)
        features = {each.name: each for each in (await self.describe_features()).features}
        metadata = features.get(METADATA_VERSION)
        own = features.get(APPLICATION_VERSION)
        is_known = level > 0 and own is not None and level in own.supported
        is_new = is_known and metadata is not None and not metadata.finalized_level
        if metadata is not None and is_new:
            await self.update_features(
                METADATA_VERSION,
                metadata.supported.max,
                validate_only=validate_only,
                timeout_ms=timeout_ms,
            )
            if validate_only:
                return None
        while True:
            left_ms = max(1, int(deadline_ms - now_ms()))
            try:
                return await self.update_features(
                    APPLICATION_VERSION,
                    level,
                    upgrade_type=kind,
                    validate_only=validate_only,
                    timeout_ms=left_ms,
                )
            except AdminError as error:
                is_early = is_new and error.code is ErrorCode.INVALID_UPDATE_VERSION
                if not is_early or now_ms() + REGISTRATION_PAUSE_MS > deadline_ms:
                    raise
            await asyncio.sleep(REGISTRATION_PAUSE_MS / 1000)

    # --- one node ---------------------------------------------------------------------------------

    async def node_status(self, address: str) -> NodeStatus:
        """The status of the node at `host:port`. Raises UnreachableError."""
        try:
            return await self._status(parse_address(address))
        except TransportError as error:
            raise UnreachableError({address: error.text}) from None

    async def format_node(self, address: str, request: FormatRequest) -> FormatResponse:
        """Format the storage of the node at `host:port`. Raises AdminError, UnreachableError.

        OutcomeUnknownError if the connection broke; the node's status then shows the outcome.
        """
        try:
            response: FormatResponse = await self._unary(
                parse_address(address), request, self.request_timeout_ms
            )
        except TransportError as error:
            if error.nothing_done:
                raise UnreachableError({address: error.text}) from None
            raise OutcomeUnknownError(f"formatting {address}: {error.text}") from None
        if response.error is not ErrorCode.NONE:
            raise AdminError(response.error, response.message)
        return response

    # --- the log ----------------------------------------------------------------------------------

    async def append(
        self,
        records: Sequence[OpaqueRecord],
        *,
        if_last_offset: int | None = None,
        if_key_offsets: Mapping[bytes, int] | None = None,
        timeout_ms: int | None = None,
    ) -> AppendResult:
        """Commit one batch of (key, value), all or nothing. Returns after commit.

        A record with a key, which may be empty, is opaque; its value may be None, which deletes the
        key. A record whose key is None must be a metadata record in Kafka's framing.

        With application.version 1, the client sends a batch with keys again until it is answered,
        also to the next leader; the log contains it at most once, and batches without conditions in
        the order of the calls. With level 0, it sends a batch again only if nothing was appended,
        and concurrent batches may commit in any order.

        if_last_offset: append only if the last application record of the log has this offset, -1:
        if there is none. if_key_offsets: append only if the last record of each key has its offset,
        -1: if there is none, or its value is None. Keys must not be empty. These conditions, and
        values that are None, need application.version 1 (AdminError(UNSUPPORTED_VERSION)).

        ConditionFailedError: a condition does not hold. It and AdminError, NoLeaderError,
        UnreachableError: nothing was appended. OutcomeUnknownError: the batch may have been
        appended, and may still be. With level 1, this means that the timeout has passed, that the
        client was closed, or that an answer was lost and the leader then rejected the batch, for
        instance because it was without a leader for longer than `producer_expiration_ms`.
        """
        if not records:
            raise MisuseError("a batch holds at least one record")
        conditions = LogOffsets(if_last_offset, tuple((if_key_offsets or {}).items()))
        wait_ms = timeout_or(timeout_ms, self.request_timeout_ms)
        async with self._batches:
            task = self._appender.start(self._producer.append(records, wait_ms, conditions))
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError:
                if task.cancelled():
                    raise OutcomeUnknownError("the client was closed") from None
                raise

    async def append_value(self, value: bytes | None, key: bytes = OPAQUE_KEY) -> int:
        """Commit one opaque record and return its offset. Raises as `append`.

        For many concurrent callers: values submitted while a message is in flight share the next.
        None deletes the key, as in `append`.
        """
        return await self._coalescer.append((key, value))

    async def read_index(self, *, timeout_ms: int | None = None) -> int:
        """The offset up to which a linearizable read goes now: everything before it is committed.

        It includes everything that was committed before the call, because a majority confirms the
        leader's leadership after it. Raises AdminError, NoLeaderError, UnreachableError.
        """
        return await self._reader.index(timeout_or(timeout_ms, self.request_timeout_ms))

    def read(
        self,
        from_offset: int = 0,
        *,
        follow: bool = False,
        linearizable: bool | None = None,
        max_records: int | None = None,
        metadata: bool = True,
        timeout_ms: int | None = None,
    ) -> AsyncGenerator[Record]:
        """The committed data records from an offset on, to the end known when the read began.

        linearizable: include everything committed before the call; otherwise any node answers from
        its own view. None: only without `follow`. timeout_ms: for the first records, and between
        chunks. Raises AdminError, NoLeaderError, UnreachableError, ReadBrokenError.

        metadata: False leaves out the records without a key, which are the quorum's own. Such a
        read never ends with ReadBrokenError because its log was compacted meanwhile.

        follow: continue with the records that commit later, until the caller cancels; each is
        returned once and in order, also across failures of nodes, whatever node serves the read
        (the leader if it is linearizable). timeout_ms then limits only the time until a node serves
        it. Raises OffsetCompactedError if `from_offset` is before the start of every node's log,
        also later on, if the read falls behind compaction; no snapshot is returned. A `from_offset`
        beyond the end of the log is no error, however far: the records from there on are awaited,
        because a node that lags behind does not know where the log ends. `read_index` returns that.
        Such reads of one client share a stream at the end of the log (see `watching`), and get the
        same `Record` objects: do not change them. A read that falls far behind the others gets a
        stream of its own, so it delays none of them.

        If the log starts after `from_offset`, a snapshot comes first: the state of the metadata, as
        records without a key and without an offset, then application records from `from_offset` on.
        These have the offsets that `append` returned, so at every node a read from
        `record.offset + 1` continues after a record. Snapshots of earlier versions kept no offsets:
        their records, and copies of them in later snapshots, have `offset` None, and are returned
        again unless records with offsets follow them at or before `from_offset`. With compaction, a
        snapshot has only the last record of each key. A state that a state machine wrote replaces
        the records before it: it is among the records without a key, as it was written.
        """
        request = ReadRequest(
            from_offset,
            max_records,
            not follow if linearizable is None else linearizable,
            timeout_ms=timeout_or(timeout_ms, self.request_timeout_ms),
            follow=follow,
        )
        if follow:
            return self._follower.follow(request, metadata=metadata)
        return self._reader.read(request, metadata=metadata)

    # --- calls ------------------------------------------------------------------------------------

    async def _status(self, address: Address) -> NodeStatus:
        timeout_ms = min(STATUS_TIMEOUT_MS, self.request_timeout_ms)
        status: NodeStatus = await self._unary(address, NodeStatusRequest(), timeout_ms)
        return status

    async def _unary(self, address: Address, request: Any, timeout_ms: float) -> Any:
        """Make one call to one node. Raises TransportError, also for an invalid response."""
        codec = CODEC_OF[type(request)]
        message = codec.encode_request(request)
        return await self.call_node(
            address, codec.method, message, codec.decode_response, timeout_ms
        )

    async def _open_producer(self, timeout_ms: float) -> OpenProducerResponse:
        """Open a producer session. UNSUPPORTED_VERSION also if the leader's version has none.

        Raises AdminError, NoLeaderError, UnreachableError.
        """

        async def call(address: Address, left_ms: float) -> OpenProducerResponse:
            request = OpenProducerRequest(
                self._cluster.id, self.producer_expiration_ms, max(1, int(left_ms))
            )
            try:
                answer: OpenProducerResponse = await self._unary(
                    address, request, left_ms + ANSWER_SLACK_MS
                )
            except TransportError as error:
                if error.kind is not TransportKind.NOT_SERVED:
                    raise
                return await self._of_earlier_version(address, left_ms)
            return answer

        method = CODEC_OF[OpenProducerRequest].method
        answer, _ = await self.ask_leader(method, call, max(1, int(timeout_ms)))
        return answer

    async def _of_earlier_version(self, address: Address, left_ms: float) -> OpenProducerResponse:
        """Answer an OpenProducer for a node of an earlier version, which lacks it."""
        request = DescribeFeaturesRequest(self._cluster.id)
        described: DescribeFeaturesResponse = await self._unary(address, request, left_ms)
        leader = described.leader
        is_leader = address in [(each.host, each.port) for each in leader.endpoints[:1]]
        error = ErrorCode.UNSUPPORTED_VERSION if is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER
        return OpenProducerResponse(error, leader)

    async def _change(
        self,
        request: Any,
        timeout_ms: int | None,
        done_if: Mapping[ErrorCode, Callable[[VoterSet], bool]] | None = None,
    ) -> None:
        """Request a change from the leader until it answers; see rule 2.

        done_if: errors that an earlier attempt's success may cause, each with a check of the
        leader's voter set that confirms it.
        """

        async def call(address: Address, left_ms: float) -> AdminResponse:
            asked = replace(request, timeout_ms=max(1, int(left_ms)))
            answer: AdminResponse = await self._unary(address, asked, left_ms + ANSWER_SLACK_MS)
            return answer

        method = CODEC_OF[type(request)].method
        response, may_be_done = await self.ask_leader(method, call, timeout_ms)
        if response.error is ErrorCode.NONE:
            return
        is_done = (done_if or {}).get(response.error)
        if may_be_done and is_done is not None:
            view = await self.describe_quorum()
            if view.is_leaders_view and is_done(view.response.voter_set):
                return
        raise AdminError(response.error, response.message)
