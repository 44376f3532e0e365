"""A client that opens producer sessions for others."""

from __future__ import annotations

from dataclasses import replace

from quorate.rpc.client.leader_client import ANSWER_SLACK_MS, LeaderClient
from quorate.rpc.client.routing import Address
from quorate.rpc.wire.codecs import CODEC_OF
from quorate.rpc.wire.values import OpenProducerRequest, OpenProducerResponse


class SessionClient(LeaderClient):
    """A node's client for the leader."""

    async def open(self, request: OpenProducerRequest) -> OpenProducerResponse:
        """Open a session within the request's timeout.

        Raises AdminError, NoLeaderError, UnreachableError.
        """
        codec = CODEC_OF[OpenProducerRequest]

        async def call(address: Address, left_ms: float) -> OpenProducerResponse:
            message = codec.encode_request(replace(request, timeout_ms=max(1, int(left_ms))))
            answer: OpenProducerResponse = await self.call_node(
                address,
                codec.method,
                message,
                codec.decode_response,
                left_ms,
                slack_ms=ANSWER_SLACK_MS,
            )
            return answer

        answer, _ = await self.ask_leader(codec.method, call, request.timeout_ms)
        return answer
