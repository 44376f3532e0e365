"""Propagates the image and its changes to brokers in ZooKeeper mode, as their controller would.

Owns the channels, one per receiving broker, and the image that was propagated last (None while that
is unknown). All calls come from one task, in log order. The requests are built in a thread, since
that takes long for large images.

Source: KIP-866 "Controller RPCs"; Kafka's MigrationPropagator.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from quorate.bridge.propagation import control_requests
from quorate.bridge.propagation.channels import Channel
from quorate.bridge.propagation.control_requests import ControlRequests, Message, Sender
from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.image.metadata_image import MetadataImage

LOGGER = logging.getLogger(__name__)


class Propagation:
    """Sends changes of the metadata to brokers in ZooKeeper mode.

    controller_id: the sender's. listener: see `control_requests.Sender`.
    """

    def __init__(self, controller_id: int, listener: str | None) -> None:
        self._controller_id = controller_id
        self._listener = listener
        self._sender: Sender | None = None
        self._propagated: MetadataImage | None = None
        self._latest: MetadataImage | None = None
        self._channels: dict[int, Channel] = {}
        self._unreachable: set[int] = set()

    async def tell_everything(self, image: MetadataImage, zk_epoch: int) -> None:
        """Send the full state to all receivers. The caller may change the image afterwards."""
        self._sender = sender = Sender(self._controller_id, zk_epoch, self._listener)
        copy = image.copy()
        brokers = frozenset(control_requests.receivers(copy))
        messages_of = await asyncio.to_thread(control_requests.everything, copy, sender, brokers)
        await self._send(copy, messages_of)
        LOGGER.info(
            "bridge: brokers %s: queued the full state up to offset %d",
            ", ".join(map(str, sorted(brokers))) or "(none)",
            copy.offset,
        )

    async def tell(self, image: MetadataImage, changes: MetadataDelta) -> None:
        """Send the changes to the brokers that they affect.

        image: the last one with these changes and no others. Other changes in it would count as
        propagated and never be sent.
        """
        if self._sender is None:
            return
        before, self._propagated = self._propagated, None
        if before is None:
            # The last call failed halfway: it is unknown what each broker has received.
            await self.tell_everything(image, self._sender.zk_epoch)
            return
        copy = image.copy()
        messages_of = await asyncio.to_thread(
            control_requests.changed, before, copy, changes, self._sender
        )
        await self._send(copy, messages_of)

    async def silence(self) -> None:
        """Stop sending: this node is not the brokers' controller. Closes all channels."""
        channels, self._channels = self._channels, {}
        self._propagated = self._latest = self._sender = None
        await asyncio.gather(*(channel.close() for channel in channels.values()))

    async def _send(self, image: MetadataImage, messages_of: ControlRequests) -> None:
        self._propagated = self._latest = image
        await self._connect(image)
        for broker_id, messages in messages_of.items():
            if (channel := self._channels.get(broker_id)) is not None:
                channel.send(messages)

    async def _connect(self, image: MetadataImage) -> None:
        """Open a channel to each receiver for its current epoch, and close the others."""
        receivers = control_requests.receivers(image)
        for broker_id, channel in list(self._channels.items()):
            broker = receivers.get(broker_id)
            if broker is None or broker.broker_epoch != channel.epoch:
                del self._channels[broker_id]
                await channel.close()
        for broker_id, broker in receivers.items():
            if broker_id in self._channels:
                continue
            endpoint = control_requests.reached_at(broker, self._listener)
            if endpoint is None or endpoint.security_protocol != control_requests.PLAINTEXT:
                self._complain(broker_id)
                continue
            self._unreachable.discard(broker_id)
            self._channels[broker_id] = Channel(
                broker_id,
                broker.broker_epoch,
                (endpoint.host, endpoint.port),
                f"controller-{self._controller_id}",
                self._renew,
            )

    def _complain(self, broker_id: int) -> None:
        if broker_id not in self._unreachable:
            self._unreachable.add(broker_id)
            LOGGER.error(
                "bridge: broker %d has no PLAINTEXT listener%s: it receives no leaders and ISRs",
                broker_id,
                "" if self._listener is None else f" {self._listener}",
            )

    async def _renew(self, broker_id: int) -> Sequence[Message]:
        """The full state that was propagated last, for a channel that has dropped its queue."""
        if self._latest is None or self._sender is None:
            return ()
        messages_of = await asyncio.to_thread(
            control_requests.everything, self._latest, self._sender, (broker_id,)
        )
        return messages_of.get(broker_id, ())
