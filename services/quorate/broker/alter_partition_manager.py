"""Sends ISR proposals to the controller: one AlterPartition at a time, with all pending proposals.

A proposal that its partition has superseded is dropped. A proposal without a definite response is
sent again after `retry_ms`: its partition epoch makes the retry safe.

Source: Kafka's AlterPartitionManager; KIP-497, KIP-841, KIP-903 (version 3).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import islice

from quorate.broker.replica import LocalReplica
from quorate.broker.values import ProposalAnswer, ProposeIsr
from quorate.common.error_codes import ErrorCode
from quorate.metadata.requests import (
    AlterPartition,
    AlterPartitionResponse,
    PartitionProposal,
    TopicProposals,
)
from quorate.rpc.cancellation import cancel_tasks
from quorate.rpc.errors import ClientError
from quorate.rpc.metadata_client import MetadataClient
from quorate.rpc.wire.partition_values import PartitionKey
from quorate.runtime.tasks import OnFailure, supervise

LOGGER = logging.getLogger(__name__)

VERSION = 3
PROPOSALS_PER_REQUEST = 1_000
"""The controller accepts requests up to a weight of `rpc.wire.methods.METADATA_WEIGHT_MAX`."""
REQUEST_TIMEOUT_MS = 2_000


class AlterPartitionManager:
    """Batches and sends ISR proposals.

    broker_epoch: returns the epoch of the registration, which the controller checks. fail: called
    with a fatal error.
    """

    def __init__(
        self,
        broker_id: int,
        client: MetadataClient,
        *,
        broker_epoch: Callable[[], int],
        fail: OnFailure,
        retry_ms: int = 50,
    ) -> None:
        self._broker_id = broker_id
        self._client = client
        self._broker_epoch = broker_epoch
        self._fail = fail
        self._retry_ms = retry_ms
        self._waiting: dict[PartitionKey, tuple[LocalReplica, ProposeIsr]] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = supervise(self._run(), "isr-proposals", self._fail)

    async def stop(self) -> None:
        await cancel_tasks(self._task)

    def add(self, replica: LocalReplica, proposal: ProposeIsr) -> None:
        """Send a proposal; the response is passed to `replica.isr_answered`."""
        self._waiting[replica.key] = (replica, proposal)
        self._wake.set()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            if not self._waiting:
                await self._wake.wait()
            taken = list(islice(self._waiting, PROPOSALS_PER_REQUEST))
            sent = {key: self._waiting.pop(key) for key in taken}
            sent = {key: each for key, each in sent.items() if each[0].machine.is_asked(each[1])}
            if sent and not await self._send(sent):
                await asyncio.sleep(self._retry_ms / 1000)

    async def _send(self, sent: dict[PartitionKey, tuple[LocalReplica, ProposeIsr]]) -> bool:
        """Send one request; False if some of its proposals must be sent again later."""
        try:
            response = await self._client.ask(self._request(sent), timeout_ms=REQUEST_TIMEOUT_MS)
        except ClientError as error:
            LOGGER.info("AlterPartition failed, will retry: %s", error)
            answers = dict.fromkeys(sent, ProposalAnswer(ErrorCode.NETWORK_EXCEPTION))
        else:
            answers = _answers(response, sent)
        settled = True
        for key, (replica, proposal) in sent.items():
            answer = answers.get(key, ProposalAnswer(ErrorCode.UNKNOWN_SERVER_ERROR))
            level = logging.DEBUG if answer.error is ErrorCode.NONE else logging.INFO
            members = sorted(member.id for member in proposal.isr)
            LOGGER.log(level, "%s: proposed ISR %s: %s", replica.name, members, answer.error.name)
            if replica.isr_answered(proposal, answer):
                self._waiting.setdefault(key, (replica, proposal))
                settled = False
        return settled

    def _request(self, sent: dict[PartitionKey, tuple[LocalReplica, ProposeIsr]]) -> AlterPartition:
        topics: dict[str, list[PartitionProposal]] = {}
        for key, (_, proposal) in sent.items():
            topics.setdefault(key.topic_id, []).append(
                PartitionProposal(
                    key.index, proposal.leader_epoch, proposal.partition_epoch, proposal.isr
                )
            )
        return AlterPartition(
            self._broker_id,
            self._broker_epoch(),
            tuple(TopicProposals(tuple(each), topic_id) for topic_id, each in topics.items()),
            VERSION,
        )


def _answers(
    response: AlterPartitionResponse, sent: dict[PartitionKey, tuple[LocalReplica, ProposeIsr]]
) -> dict[PartitionKey, ProposalAnswer]:
    if response.error is not ErrorCode.NONE:
        return dict.fromkeys(sent, ProposalAnswer(response.error))
    return {
        PartitionKey(topic.topic_id, each.partition): ProposalAnswer(
            each.error, each.leader, each.leader_epoch, each.isr, each.partition_epoch
        )
        for topic in response.topics
        for each in topic.partitions
    }
