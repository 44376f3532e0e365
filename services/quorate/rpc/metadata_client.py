"""The client of the metadata controller, for administrators and for brokers.

Rules:
1. Every call ends: with the response, or with a `ClientError` once its timeout has passed.
2. A node that is not the active controller names the leader, and the client goes there
   (`routing.LeaderSearch`); it keeps searching while there is none.
3. Reads are retried freely. A change is retried after a broken connection: executing it twice has
   the same result, or fails with an error that says so (TOPIC_ALREADY_EXISTS, …). `Asked.repeated`
   tells whether an earlier attempt may have been executed. AllocateProducerIds loses a block at
   worst.

Source: KIP-919 (admin clients at controllers), KIP-590 (forwarding); tenacity for the pauses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quorate.common.error_codes import ErrorCode
from quorate.raft.errors import MisuseError
from quorate.raft.messages import CurrentLeader
from quorate.rpc.client.leader_client import ANSWER_SLACK_MS, LeaderClient
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.client.routing import Address
from quorate.rpc.errors import AdminError
from quorate.rpc.wire.convert_metadata import METADATA_CODECS, MetadataAnswer

ATTEMPT_MS_MAX = 30_000
"""How long to wait for one node before trying another, if the call's timeout is longer."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A response, the leader, and whether an earlier attempt may also have been executed."""

    response: Any
    leader: CurrentLeader
    repeated: bool = False


@dataclass(kw_only=True, eq=False, repr=False)
class MetadataClient(LeaderClient):
    """A client of one cluster's metadata; `LeaderClient` has its options."""

    client_id: str = "quorate-metadata-client"

    def learn(self, leader: CurrentLeader) -> None:
        """Learn the leader from another source; it is tried first unless it is outdated."""
        self._search.route.learn(leader)

    def quorum_client(self) -> QuorumClient:
        """A client of the quorum itself, at the same addresses; the caller closes it."""
        return QuorumClient(
            self.bootstrap,
            tls=self.tls,
            request_timeout_ms=self.request_timeout_ms,
            cluster_id=self._cluster.id,
        )

    async def ask(self, request: Any, *, timeout_ms: int | None = None) -> Any:
        """The response to one of the requests in `convert_metadata.METADATA_CODECS`.

        Raises AdminError if the request is rejected as a whole or times out; NoLeaderError,
        UnreachableError. The response holds the outcome for each topic, resource, ….
        """
        return (await self.ask_whole(request, timeout_ms=timeout_ms)).response

    async def ask_whole(self, request: Any, *, timeout_ms: int | None = None) -> Asked:
        """Like `ask`, but also returns the leader and whether an earlier attempt may have run."""
        codec = METADATA_CODECS.get(type(request))
        if codec is None:
            raise MisuseError(
                f"{type(request).__name__} is not a request to the metadata controller"
            )

        async def call(address: Address, left_ms: float) -> MetadataAnswer:
            attempt_ms = max(1, min(int(left_ms), ATTEMPT_MS_MAX))
            message = codec.encode_request(request, attempt_ms)
            return await self.call_node(
                address,
                codec.method,
                message,
                codec.decode_response,
                attempt_ms,
                slack_ms=ANSWER_SLACK_MS,
            )

        answer, repeated = await self.ask_leader(codec.method, call, timeout_ms)
        if answer.error is not ErrorCode.NONE:
            raise AdminError(answer.error, answer.message)
        return Asked(answer.response, answer.leader, repeated)
