"""Produce and InitProducerId: appends of batches that clients have encoded.

Rules:
1. Produce is acknowledged when its records are committed, whatever `acks` says. With acks=0 there
   is no response, and an error closes the connection.
2. A record needs a key, because records without one are the cluster's metadata. Transactions and
   compressed batches are rejected. The records get the time at which they are appended, because
   producer sessions end by the times of the log.
3. InitProducerId opens a producer session (`applications.sessions`), so it needs
   application.version 1. A producer continues with the next epoch by itself after records that it
   has given up. Once its session has ended, it gets INVALID_PRODUCER_EPOCH, which it does not
   retry, and has to be created again.

Source: Kafka's KafkaApis; KIP-98 (idempotent producer).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from quorate.bridge.listener.connections import KafkaConnection
from quorate.bridge.listener.listening import wall_ms
from quorate.bridge.listener.server import NO_RESPONSE
from quorate.bridge.messages import schemas as s
from quorate.common.error_codes import ErrorCode
from quorate.metadata.authorizer import Operation
from quorate.records.client_batch import (
    RejectedBatchError,
    check_client_batch,
    set_append_time,
)
from quorate.rpc.errors import BadMessageError
from quorate.rpc.framing.frame_stream import INLINE_BYTES
from quorate.rpc.wire.limits import CHANGE_TIMEOUT_MS_MAX
from quorate.rpc.wire.values import AppendOutcome, OpenProducerRequest, OpenProducerResponse
from quorate.runtime.append_service import AppendService
from quorate.topic.access import UNKNOWN, TopicAccess
from quorate.topic.apis import INIT_PRODUCER_ID, PRODUCE

OPEN_TIMEOUT_MS: Final = 30_000
"""How long InitProducerId may take; the request has no timeout of its own."""
ACKS: Final = (-1, 0, 1)

OpenSession = Callable[[OpenProducerRequest], Awaitable[OpenProducerResponse]]
"""Opens a producer session."""


class Producing:
    """Answers producers."""

    def __init__(
        self, access: TopicAccess, appends: AppendService, open_session: OpenSession
    ) -> None:
        self._access = access
        self._appends = appends
        self._open_session = open_session

    async def produce(self, call: s.Call, connection: KafkaConnection) -> Any:
        body = call.body
        module = s.response_module(PRODUCE, call.version)
        named = [
            (topic.name, part.index) for topic in body.topic_data for part in topic.partition_data
        ]
        fault: tuple[ErrorCode, str] | None = None
        if body.acks not in ACKS:
            fault = ErrorCode.INVALID_REQUIRED_ACKS, ""
        elif body.transactional_id is not None:
            fault = ErrorCode.INVALID_REQUEST, "transactions are not supported"
        elif len(set(named)) < len(named):
            fault = ErrorCode.INVALID_REQUEST, "a partition is named twice"
        timeout_ms = min(max(1, body.timeout // s.milliseconds(1)), CHANGE_TIMEOUT_MS_MAX)
        responses = []
        for topic in body.topic_data:
            parts = []
            for part in topic.partition_data:
                error = self._access.fault(connection, Operation.WRITE, topic.name, part.index)
                if error is not ErrorCode.NONE:
                    produced = _Produced(error)
                elif fault is not None:
                    produced = _Produced(*fault)
                elif part.records is None:
                    produced = _Produced(ErrorCode.INVALID_RECORD, "there are no records")
                else:
                    produced = await self._append(part.records, timeout_ms)
                if body.acks == 0 and produced.error is not ErrorCode.NONE:
                    text = produced.message or produced.error.name
                    raise BadMessageError(f"its records with acks=0 are rejected: {text}")
                parts.append(self._produced_part(module, part.index, produced))
            responses.append(
                module.TopicProduceResponse(name=topic.name, partition_responses=tuple(parts))
            )
        if body.acks == 0:
            return NO_RESPONSE
        return s.answer(module, responses=tuple(responses))

    async def _append(self, records: bytes, timeout_ms: int) -> _Produced:
        """Append one batch."""
        if not self._access.raft.node.is_leader:
            return _Produced(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        try:
            if len(records) <= INLINE_BYTES:
                header, has_null_values = check_client_batch(records)
            else:
                header, has_null_values = await asyncio.to_thread(check_client_batch, records)
        except RejectedBatchError as error:
            return _Produced(error.error, str(error), record=error.record)
        batch = bytearray(records)
        now_ms = wall_ms()
        set_append_time(batch, now_ms)
        outcome = await self._appends.append_batch(
            batch, timeout_ms, has_null_values=has_null_values
        )
        return _Produced(
            _produce_error(outcome, header.producer_epoch),
            outcome.message,
            outcome.base_offset if outcome.error is ErrorCode.NONE else UNKNOWN,
            now_ms,
        )

    def _produced_part(self, module: Any, index: int, produced: _Produced) -> Any:
        is_done = produced.error is ErrorCode.NONE
        errors: tuple[Any, ...] = ()
        kind = getattr(module, "BatchIndexAndErrorMessage", None)
        if produced.record >= 0 and kind is not None:
            text = produced.message
            errors = (kind(batch_index=produced.record, batch_index_error_message=text),)
        return s.make(
            module.PartitionProduceResponse,
            index=index,
            **s.error_fields(produced.error, produced.message),
            base_offset=produced.base_offset,
            log_append_time=s.moment(produced.time_ms) if is_done else None,
            # Java's producers repeat UNKNOWN_PRODUCER_ID for as long as they get none.
            log_start_offset=self._access.raft.log.start_offset,
            record_errors=errors,
        )

    async def init_producer_id(self, call: s.Call, connection: KafkaConnection) -> Any:
        error, producer_id = ErrorCode.NONE, UNKNOWN
        if not self._access.allows(connection, Operation.WRITE):
            error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        elif call.body.transactional_id is not None:
            error = ErrorCode.INVALID_REQUEST
        elif getattr(call.body, "producer_id", UNKNOWN) != UNKNOWN:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        else:
            request = OpenProducerRequest(
                self._access.settings.cluster_id,
                self._access.settings.session_expiration_ms,
                timeout_ms=OPEN_TIMEOUT_MS,
            )
            opened = await self._open_session(request)
            error, producer_id = opened.error, opened.producer_id
        return s.answer(
            s.response_module(INIT_PRODUCER_ID, call.version),
            error_code=s.error_field(error),
            producer_id=producer_id if error is ErrorCode.NONE else UNKNOWN,
            producer_epoch=0 if error is ErrorCode.NONE else UNKNOWN,
        )


@dataclass(frozen=True, slots=True)
class _Produced:
    """How the append of one batch ended."""

    error: ErrorCode
    message: str = ""
    base_offset: int = UNKNOWN
    time_ms: int = UNKNOWN
    record: int = UNKNOWN
    """The index of the record that is the reason for an error."""


def _produce_error(outcome: AppendOutcome, producer_epoch: int) -> ErrorCode:
    """The error of an append as producers expect it."""
    error = outcome.error
    if error is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
        return ErrorCode.NOT_ENOUGH_REPLICAS  # which every producer retries
    if error is ErrorCode.UNKNOWN_PRODUCER_ID and producer_epoch > 0:
        # A producer answers the other error with yet another epoch (rule 3).
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
