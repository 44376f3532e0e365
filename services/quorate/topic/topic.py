"""Serves the records of applications as a topic with one partition, over Kafka's protocol.

Any Kafka producer can append, and any Kafka consumer without a group can read. Partition 0 is the
log: its leader is the quorum's, and offsets are the log's. Requests are authorized with WRITE, READ
and DESCRIBE on the topic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from quorate.bridge.listener.connections import KafkaConnection
from quorate.bridge.listener.listening import Listening
from quorate.bridge.listener.server import api_versions
from quorate.bridge.messages import schemas as s
from quorate.metadata.authorizer import Operation
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.rpc.framing.frame_stream import FRAME_BYTES_MAX
from quorate.runtime.append_service import AppendService
from quorate.runtime.authorizer import NodeAuthorizer
from quorate.runtime.driver import RaftDriver
from quorate.topic.access import TopicAccess, TopicSettings
from quorate.topic.apis import INIT_PRODUCER_ID, LIST_OFFSETS, METADATA, PRODUCE, SERVED
from quorate.topic.consuming import Consuming
from quorate.topic.describing import Describing
from quorate.topic.producing import OpenSession, Producing

STRANGERS_FRAME_BYTES_MAX: Final = 256 * 1024
"""The longest frame of a caller that may not write."""


class Topic:
    """Answers the requests that arrive at the listener for producers and consumers.

    authorizer: None accepts all callers. image: see `Listening`. Create it before the driver
    starts.
    """

    def __init__(
        self,
        settings: TopicSettings,
        raft: RaftDriver,
        appends: AppendService,
        open_session: OpenSession,
        *,
        authorizer: NodeAuthorizer | None = None,
        image: Callable[[], MetadataImage] = MetadataImage,
    ) -> None:
        self._access = TopicAccess(settings, raft, authorizer)
        producing = Producing(self._access, appends, open_session)
        consuming = Consuming(self._access)
        self._answers = {
            PRODUCE: producing.produce,
            INIT_PRODUCER_ID: producing.init_producer_id,
            s.FETCH: consuming.fetch,
            LIST_OFFSETS: consuming.list_offsets,
            METADATA: Describing(self._access).answer,
        }
        self.listening = Listening(
            settings.listening, self, "producers and consumers", image, SERVED
        )

    def frame_bytes_max(self, connection: KafkaConnection) -> int:
        """The longest frame that this connection may send."""
        is_writer = self._access.allows(connection, Operation.WRITE)
        return FRAME_BYTES_MAX if is_writer else STRANGERS_FRAME_BYTES_MAX

    def refuse(self, _head: s.Call, _connection: KafkaConnection) -> Any:
        """Reject nothing by its header: responses name what was asked for."""
        return None

    async def answer(self, call: s.Call, connection: KafkaConnection) -> Any:
        """The response to a request, in the request's version."""
        if call.api_key == s.API_VERSIONS:
            return api_versions(call, served=SERVED)
        return await self._answers[call.api_key](call, connection)
