"""Connections to brokers' Partition service: one stream for batches, one for fetches, unary calls.

Owns the streams and their pending calls. The callers decide which broker to call, and what to do
when a broker does not lead. Failures raise `TransportError`; a batch that was sent on a stream that
broke may have been appended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import grpc.aio
from google.protobuf.message import Message

from quorate.common.endpoints import Endpoint
from quorate.raft.errors import MisuseError, ViolationError
from quorate.rpc.client.channels import EOF, Channels, Link, call_error
from quorate.rpc.client.client_stream import ClientStream
from quorate.rpc.client.routing import Address
from quorate.rpc.errors import TransportError, TransportKind
from quorate.rpc.tls import TlsConfig
from quorate.rpc.wire import partition_convert as convert
from quorate.rpc.wire.limits import ChannelLimits
from quorate.rpc.wire.methods import PARTITION_METHODS
from quorate.rpc.wire.partition_values import (
    Located,
    PartitionFetch,
    PartitionFetchResponse,
    PartitionKey,
    PartitionOffsets,
    ProduceRequest,
    ProduceResponse,
    ProducerIdentity,
)
from quorate.v1 import partition_pb2 as pb

PRODUCE = PARTITION_METHODS["Produce"]
FETCH = PARTITION_METHODS["Fetch"]
FETCH_GRACE_MS = 2_000
"""How much longer than `max_wait_ms` a response may take, milliseconds."""
CALL_TIMEOUT_MS = 5_000

T = TypeVar("T")


class BrokerConnections:
    """Channels to brokers, and the unary calls. tls: for TLS listeners, None for plaintext."""

    def __init__(self, tls: TlsConfig | None = None, identity: str = "quorate-partitions") -> None:
        self._channels = Channels(tls, ChannelLimits(), identity)

    async def open_produce(self, host: str, port: int) -> ProduceStream:
        """Open a connected stream for batches."""
        link = await self._channels.connect(host, port, CALL_TIMEOUT_MS)
        return ProduceStream(link, self._channels)

    async def open_fetch(self, host: str, port: int) -> PartitionFetchStream:
        """Open a connected stream for fetches."""
        link = await self._channels.connect(host, port, CALL_TIMEOUT_MS)
        return PartitionFetchStream(link, self._channels)

    async def locate(
        self, host: str, port: int, topics: Sequence[str], timeout_ms: float = CALL_TIMEOUT_MS
    ) -> Located:
        message = pb.LocateRequest(topics=topics)
        return await self._call((host, port), "Locate", message, convert.LOCATED.decode, timeout_ms)

    async def list_offsets(
        self, host: str, port: int, key: PartitionKey, timeout_ms: float = CALL_TIMEOUT_MS
    ) -> PartitionOffsets:
        message = pb.ListOffsetsRequest(partition=convert.key_to_wire(key))
        return await self._call(
            (host, port), "ListOffsets", message, convert.OFFSETS.decode, timeout_ms
        )

    async def init_producer_id(
        self, host: str, port: int, timeout_ms: float = CALL_TIMEOUT_MS
    ) -> ProducerIdentity:
        message = pb.InitProducerIdRequest()
        return await self._call(
            (host, port), "InitProducerId", message, convert.IDENTITY.decode, timeout_ms
        )

    async def _call(
        self,
        address: Address,
        name: str,
        message: Message,
        decode: Callable[[Any], T],
        timeout_ms: float,
    ) -> T:
        method = PARTITION_METHODS[name]
        with self._channels.use(*address) as link:
            answer = await self._channels.unary(
                link, method.path, message, method.response, timeout_ms
            )
            return decode(answer)

    async def close(self) -> None:
        await self._channels.close()


class ProduceStream(ClientStream[ProduceResponse]):
    """Batches in flight to one broker. Responses arrive in any order."""

    def __init__(self, link: Link, channels: Channels) -> None:
        super().__init__(
            link, channels, PRODUCE.path, pb.ProduceResponse, convert.decode_produce_response
        )

    async def produce(self, request: ProduceRequest, timeout_ms: float) -> ProduceResponse:
        """Send a batch and wait for its response. TransportError: it may have been appended."""

        def encode(correlation_id: int) -> pb.ProduceRequest:
            return convert.encode_produce_request(correlation_id, request)

        return await self._ask(encode, timeout_ms)


class PartitionFetchStream:
    """One fetch at a time from one broker."""

    def __init__(self, link: Link, channels: Channels) -> None:
        self._link = link
        self._channels = channels
        self._call = link.stream(FETCH.path, pb.PartitionFetchResponse)
        self._is_busy = False
        self.is_open = True

    async def fetch(self, request: PartitionFetch) -> PartitionFetchResponse:
        """Send one request and wait for its response. A failure closes the stream.

        Raises TransportError; ViolationError for an invalid response.
        """
        if self._is_busy:
            raise MisuseError("a fetch is already in progress on this stream")
        if not self.is_open:
            raise TransportError(TransportKind.BROKEN, self._link.address, "the stream is closed")
        timeout_ms = request.max_wait_ms + FETCH_GRACE_MS
        self._is_busy = True
        is_answered = False
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._call.write(convert.encode_fetch(request))
                message = await self._call.read()
            if message is EOF:
                raise await self._link.ended(self._call)
            response = convert.decode_fetched(message)
            is_answered = True
            return response
        except TimeoutError:
            text = f"no answer to a fetch within {timeout_ms} ms"
            raise TransportError(TransportKind.TIMEOUT, self._link.address, text) from None
        except grpc.aio.AioRpcError as error:
            raise call_error(self._link.address, error) from None
        except asyncio.InvalidStateError:
            raise await self._link.ended(self._call) from None
        finally:
            self._is_busy = False
            if not is_answered:
                self.close()

    def close(self) -> None:
        """End the stream; a pending fetch fails."""
        if self.is_open:
            self.is_open = False
            self._call.cancel()
            self._channels.release(self._link)


def address_of(endpoints: Sequence[Endpoint], listener: str | None = None) -> tuple[str, int]:
    """A broker's address: its listener of that name, else its first. ViolationError if none."""
    if not endpoints:
        raise ViolationError("a broker without endpoints")
    chosen = next((e for e in endpoints if e.name == listener), endpoints[0])
    return chosen.host, chosen.port
