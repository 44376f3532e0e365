"""The servicers of quorate.v1: messages in, values to the handler, its answers out.

Rules:
1. A request that violates the protocol is answered with INVALID_REQUEST and the reason.
2. What a handler raises is logged with the call and its sender, and answered with
   UNKNOWN_SERVER_ERROR. It never ends the server.
3. What a gate refuses is answered with its refusal before the handler hears of it; NodeStatus,
   whose answer has no field for an error, ends with PERMISSION_DENIED.
4. A node that is not formatted ends every method but Format and NodeStatus with
   FAILED_PRECONDITION.

Source: proto/quorate/v1/raft.proto, quorum.proto.
"""
# ruff: noqa: N802 - the methods have the names of the proto

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from quorate.raft.errors import ErrorCode, ViolationError
from quorate.raft.messages import (
    AdminResponse,
    ApiVersionsResponse,
    BeginQuorumEpochResponse,
    DescribeQuorumResponse,
    EndQuorumEpochResponse,
    FetchResponse,
    FetchSnapshotResponse,
    VoteResponse,
)
from quorate.raft.types import NO_NODE, ReplicaKey, VersionRange
from quorate.rpc import convert, convert_quorum
from quorate.rpc.answered_stream import AnsweredStream, Running, begun
from quorate.rpc.append_serving import NO_LEADER, Appends
from quorate.rpc.channels import EOF
from quorate.rpc.gate import Asker, Gate, method_name
from quorate.rpc.handler import NodeHandler, RaftHandler
from quorate.rpc.limits import LONE_FETCH_BYTES_MAX, SNAPSHOT_PIECE_BYTES_MAX, ServerLimits
from quorate.rpc.refusals import Refusals
from quorate.rpc.throttle import RECORDS_BYTES, Turns
from quorate.rpc.values import (
    Buffer,
    ChecksumLogResponse,
    DescribeFeaturesResponse,
    FormatResponse,
    ReadChunk,
)
from quorate.v1 import quorum_pb2, quorum_pb2_grpc, raft_pb2, raft_pb2_grpc

LOGGER = logging.getLogger(__name__)
REFUSALS = Refusals(LOGGER)

Context = grpc.aio.ServicerContext[Any, Any]
V = TypeVar("V")
R = TypeVar("R")
M = TypeVar("M", bound=Message)

RESPONSE_ROOM_BYTES = 64 * 1024
"""What a FetchResponse may take beside its records."""

NOT_FORMATTED = "this node is not formatted: it serves Format and NodeStatus only"


class Slot:
    """Who handles requests now, and who decides which. The handler changes once in a process's
    life: when the node has been formatted.
    """

    def __init__(self, handler: NodeHandler, gate: Gate | None, turns: Turns) -> None:
        self.gate = gate
        self.turns = turns
        self.use(handler)

    def use(self, handler: NodeHandler) -> None:
        self.handler = handler
        # Asked once: the check looks at each method and is too slow for each call.
        self._raft = handler if isinstance(handler, RaftHandler) else None

    def asker(self, context: Context) -> Asker | None:
        """Who calls, where it matters."""
        return Asker.of(self.gate, context)

    async def admin(self, context: Context) -> RaftHandler:
        """As `raft`, in turn."""
        await self.turns.wait(context)
        return await self.raft(context)

    async def raft(self, context: Context) -> RaftHandler:
        """The running node, or the end of the call."""
        if self._raft is None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, NOT_FORMATTED)
        return self._raft


def _refused(message: Message, context: Context, error: ViolationError) -> str:
    REFUSALS.say(method_name(message), context.peer(), error)
    return str(error)


def _failed(message: Message, context: Context, error: Exception) -> str:
    LOGGER.exception("%s from %s failed", method_name(message), context.peer())
    return f"internal error: {type(error).__name__}"


@dataclass(frozen=True, slots=True)
class _Unary(Generic[V, R, M]):
    """How a unary method reads its request and writes its answer, and what it answers to an
    error.
    """

    decode: Callable[[Any], V]
    encode: Callable[[R], M]
    refuse: Callable[[ErrorCode, str], R]

    async def serve(
        self,
        message: Message,
        context: Context,
        handle: Callable[[V], Awaitable[Any]],
        asker: Asker | None = None,
    ) -> M:
        """Decode, handle, encode, and answer what goes wrong in between (rules 1 to 3)."""
        try:
            request = self.decode(message)
            if asker is not None and (refused := asker.refusal(message, request)) is not None:
                return self.encode(self.refuse(*refused))
            return self.encode(await handle(request))
        except ViolationError as error:
            text = _refused(message, context, error)
            return self.encode(self.refuse(ErrorCode.INVALID_REQUEST, text))
        except Exception as error:
            text = _failed(message, context, error)
            return self.encode(self.refuse(ErrorCode.UNKNOWN_SERVER_ERROR, text))


def _admin(error: ErrorCode, text: str) -> AdminResponse:
    return AdminResponse(error, NO_LEADER, text)


_VOTE = _Unary(
    convert.decode_vote_request,
    convert.encode_vote_response,
    lambda error, text: VoteResponse(error, NO_LEADER, message=text),
)
_BEGIN = _Unary(
    convert.decode_begin_request,
    convert.encode_begin_response,
    lambda error, text: BeginQuorumEpochResponse(error, NO_LEADER, text),
)
_END = _Unary(
    convert.decode_end_request,
    convert.encode_end_response,
    lambda error, text: EndQuorumEpochResponse(error, NO_LEADER, text),
)
_UPDATE_VOTER = _Unary(
    convert.decode_update_voter_request, convert.encode_update_voter_response, _admin
)
_API_VERSIONS = _Unary(
    convert.decode_api_versions_request,
    convert.encode_api_versions_response,
    lambda error, text: ApiVersionsResponse(error, ReplicaKey(NO_NODE), VersionRange(0, 0), text),
)
_CHECKSUM = _Unary(
    convert.decode_checksum_request,
    convert.encode_checksum_response,
    lambda error, text: ChecksumLogResponse(error, message=text),
)
_DESCRIBE = _Unary(
    convert_quorum.decode_describe_request,
    convert_quorum.encode_describe_response,
    lambda error, text: DescribeQuorumResponse(error, NO_LEADER, message=text),
)
_ADD_VOTER = _Unary(
    convert_quorum.decode_add_voter_request, convert_quorum.encode_add_voter_response, _admin
)
_REMOVE_VOTER = _Unary(
    convert_quorum.decode_remove_voter_request, convert_quorum.encode_remove_voter_response, _admin
)
_TRANSFER = _Unary(
    convert_quorum.decode_transfer_request, convert_quorum.encode_transfer_response, _admin
)
_DESCRIBE_FEATURES = _Unary(
    lambda message: message,
    convert_quorum.encode_features_response,
    lambda error, text: DescribeFeaturesResponse(error, NO_LEADER, message=text),
)
_UPDATE_FEATURES = _Unary(
    convert_quorum.decode_update_features_request,
    convert_quorum.encode_update_features_response,
    _admin,
)
_FORMAT = _Unary(
    convert_quorum.decode_format_request,
    convert_quorum.encode_format_response,
    lambda error, text: FormatResponse(error, message=text),
)


class RaftServicer(raft_pb2_grpc.RaftServicer):
    """Controller to controller."""

    def __init__(self, slot: Slot, limits: ServerLimits) -> None:
        self._slot = slot
        self._limits = limits
        self._fetch = _Unary(
            convert.decode_fetch_request,
            self._encode,
            lambda error, text: (FetchResponse(error, NO_LEADER, message=text), ()),
        )

    async def Vote(self, request: raft_pb2.VoteRequest, context: Context) -> raft_pb2.VoteResponse:
        handler = await self._slot.raft(context)
        return await _VOTE.serve(request, context, handler.handle, self._slot.asker(context))

    async def BeginQuorumEpoch(
        self, request: raft_pb2.BeginQuorumEpochRequest, context: Context
    ) -> raft_pb2.BeginQuorumEpochResponse:
        handler = await self._slot.raft(context)
        return await _BEGIN.serve(request, context, handler.handle, self._slot.asker(context))

    async def EndQuorumEpoch(
        self, request: raft_pb2.EndQuorumEpochRequest, context: Context
    ) -> raft_pb2.EndQuorumEpochResponse:
        handler = await self._slot.raft(context)
        return await _END.serve(request, context, handler.handle, self._slot.asker(context))

    async def UpdateVoter(
        self, request: raft_pb2.UpdateVoterRequest, context: Context
    ) -> raft_pb2.UpdateVoterResponse:
        handler = await self._slot.raft(context)
        return await _UPDATE_VOTER.serve(
            request, context, handler.handle, self._slot.asker(context)
        )

    async def ApiVersions(
        self, request: raft_pb2.ApiVersionsRequest, context: Context
    ) -> raft_pb2.ApiVersionsResponse:
        handler = await self._slot.raft(context)
        return await _API_VERSIONS.serve(
            request, context, handler.handle, self._slot.asker(context)
        )

    async def ChecksumLog(
        self, request: raft_pb2.ChecksumLogRequest, context: Context
    ) -> raft_pb2.ChecksumLogResponse:
        handler = await self._slot.admin(context)
        return await _CHECKSUM.serve(
            request, context, handler.checksum_log, self._slot.asker(context)
        )

    async def Fetch(
        self, request: raft_pb2.FetchRequest, context: Context
    ) -> raft_pb2.FetchResponse:
        handler = await self._slot.admin(context)
        wanted = request.max_bytes if request.HasField("max_bytes") else LONE_FETCH_BYTES_MAX
        request.max_bytes = min(wanted, LONE_FETCH_BYTES_MAX)
        answer = await self._one_fetch(handler, request, context, self._slot.asker(context))
        self._slot.turns.charge(context, answer, RECORDS_BYTES)
        return answer

    async def FetchStream(
        self, _requests: AsyncIterator[raft_pb2.FetchRequest], context: Context
    ) -> None:
        """One fetch at a time: read, handle, answer."""
        handler = await self._slot.raft(context)
        asker = self._slot.asker(context)
        while (request := await context.read()) is not EOF:
            await context.write(await self._one_fetch(handler, request, context, asker))

    async def _one_fetch(
        self,
        handler: RaftHandler,
        request: raft_pb2.FetchRequest,
        context: Context,
        asker: Asker | None,
    ) -> raft_pb2.FetchResponse:
        return await self._fetch.serve(request, context, handler.fetch, asker)

    def _encode(self, answer: tuple[FetchResponse, Sequence[Buffer]]) -> raft_pb2.FetchResponse:
        response, records = answer
        size = sum(len(part) for part in records)
        limit = self._limits.message_bytes_max - RESPONSE_ROOM_BYTES
        if size > limit:
            # It would break the stream, again and again; the error has a reader.
            text = f"{size} bytes of records in one answer: the limit is {limit}"
            LOGGER.error("a fetch at offset %s: %s", response.records_from, text)
            refused = FetchResponse(ErrorCode.MESSAGE_TOO_LARGE, response.leader, message=text)
            return convert.encode_fetch_response(refused)
        return convert.encode_fetch_response(response, records)

    async def FetchSnapshot(
        self, request: raft_pb2.FetchSnapshotRequest, context: Context
    ) -> AsyncIterator[raft_pb2.FetchSnapshotResponse]:
        handler = await self._slot.raft(context)
        asker = self._slot.asker(context)
        try:
            wanted = convert.decode_snapshot_request(request)
            refused = None if asker is None else asker.refusal(request, wanted)
            if refused is None:
                response = await handler.fetch_snapshot(wanted)
            else:
                response = FetchSnapshotResponse(refused[0], NO_LEADER, message=refused[1])
        except ViolationError as error:
            text = _refused(request, context, error)
            response = FetchSnapshotResponse(ErrorCode.INVALID_REQUEST, NO_LEADER, message=text)
        except Exception as error:
            text = _failed(request, context, error)
            response = FetchSnapshotResponse(
                ErrorCode.UNKNOWN_SERVER_ERROR, NO_LEADER, message=text
            )
        data = memoryview(response.data)
        for start in range(0, max(1, len(data)), SNAPSHOT_PIECE_BYTES_MAX):
            piece = bytes(data[start : start + SNAPSHOT_PIECE_BYTES_MAX])
            yield convert.encode_snapshot_response(
                replace(response, position=response.position + start, data=piece)
            )


class QuorumServicer(quorum_pb2_grpc.QuorumServicer):
    """Administrators and applications. `running` are appends under way: they outlive their
    streams.
    """

    def __init__(self, slot: Slot, limits: ServerLimits) -> None:
        self._slot = slot
        self._limits = limits
        self.running: Running = set()

    async def DescribeQuorum(
        self, request: quorum_pb2.DescribeQuorumRequest, context: Context
    ) -> quorum_pb2.DescribeQuorumResponse:
        handler = await self._slot.admin(context)
        asker = self._slot.asker(context)
        answer = await _DESCRIBE.serve(request, context, handler.handle, asker)
        self._slot.turns.charge(context, answer)
        return answer

    async def AddVoter(
        self, request: quorum_pb2.AddVoterRequest, context: Context
    ) -> quorum_pb2.AddVoterResponse:
        handler = await self._slot.admin(context)
        return await _ADD_VOTER.serve(request, context, handler.handle, self._slot.asker(context))

    async def RemoveVoter(
        self, request: quorum_pb2.RemoveVoterRequest, context: Context
    ) -> quorum_pb2.RemoveVoterResponse:
        handler = await self._slot.admin(context)
        return await _REMOVE_VOTER.serve(
            request, context, handler.handle, self._slot.asker(context)
        )

    async def TransferLeadership(
        self, request: quorum_pb2.TransferLeadershipRequest, context: Context
    ) -> quorum_pb2.TransferLeadershipResponse:
        handler = await self._slot.admin(context)
        return await _TRANSFER.serve(request, context, handler.handle, self._slot.asker(context))

    async def DescribeFeatures(
        self, request: quorum_pb2.DescribeFeaturesRequest, context: Context
    ) -> quorum_pb2.DescribeFeaturesResponse:
        handler = await self._slot.admin(context)
        return await _DESCRIBE_FEATURES.serve(
            request,
            context,
            lambda _: handler.describe_features(),
            self._slot.asker(context),
        )

    async def UpdateFeatures(
        self, request: quorum_pb2.UpdateFeaturesRequest, context: Context
    ) -> quorum_pb2.UpdateFeaturesResponse:
        handler = await self._slot.admin(context)
        return await _UPDATE_FEATURES.serve(
            request, context, handler.update_features, self._slot.asker(context)
        )

    async def Format(
        self, request: quorum_pb2.FormatRequest, context: Context
    ) -> quorum_pb2.FormatResponse:
        await self._slot.turns.wait(context)
        return await _FORMAT.serve(
            request, context, self._slot.handler.format, self._slot.asker(context)
        )

    async def NodeStatus(
        self, request: quorum_pb2.NodeStatusRequest, context: Context
    ) -> quorum_pb2.NodeStatusResponse:
        await self._slot.turns.wait(context)
        asker = self._slot.asker(context)
        if asker is not None and (refused := asker.refusal(request, request)) is not None:
            text = f"{refused.error.name} {refused.message}".rstrip()
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, text)
        try:
            status = await self._slot.handler.node_status()
            return convert_quorum.encode_node_status(status)
        except Exception as error:
            # This answer has no field for an error.
            text = _failed(request, context, error)
        await context.abort(grpc.StatusCode.INTERNAL, text)
        raise AssertionError("abort raises")

    async def Append(
        self, request: quorum_pb2.AppendRequest, context: Context
    ) -> quorum_pb2.AppendResponse:
        _, work = (await self._appends(context)).begin(request)
        return await asyncio.shield(begun(self.running, work))

    async def AppendStream(
        self, _requests: AsyncIterator[quorum_pb2.AppendRequest], context: Context
    ) -> None:
        appends = await self._appends(context)
        await AnsweredStream(context, self._limits, self.running, appends.begin).serve()

    async def _appends(self, context: Context) -> Appends:
        handler = await self._slot.admin(context)
        return Appends(handler, context, self._limits.batch_bytes_max, self._slot.asker(context))

    async def Read(
        self, request: quorum_pb2.ReadRequest, context: Context
    ) -> AsyncIterator[quorum_pb2.ReadResponse]:
        handler = await self._slot.admin(context)
        asker = self._slot.asker(context)
        if asker is not None and (refused := asker.refusal(request, request)) is not None:
            yield convert_quorum.encode_read_chunk(
                ReadChunk(refused.error, NO_LEADER, last=True, message=refused.message)
            )
            return
        try:
            async for chunk in handler.read(convert_quorum.decode_read_request(request)):
                yield convert_quorum.encode_read_chunk(chunk)
            return
        except ViolationError as error:
            code, text = ErrorCode.INVALID_REQUEST, _refused(request, context, error)
        except Exception as error:
            code, text = ErrorCode.UNKNOWN_SERVER_ERROR, _failed(request, context, error)
        final = ReadChunk(code, NO_LEADER, last=True, message=text)
        yield convert_quorum.encode_read_chunk(final)
