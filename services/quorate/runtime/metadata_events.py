"""Logs committed changes of brokers and topics, on the active controller.

It listens to the loader. What is replayed before this node is the active controller was committed
under another leader, which logged it, or is read at a start. Brokers and clients cause these lines,
so their number is limited: for brokers per broker, for topics in total.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping

from quorate.metadata.image.cluster import Broker
from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.rpc.wire.limits import format_address
from quorate.telemetry.limited_log import LimitedLog

LOGGER = logging.getLogger("quorate.controller")

SINGLE_LINES_MAX = 3
"""How many topics of one change get a line each; more share one."""
NAMES_MAX = 5
"""How many topics such a line names."""
HOST_CHARACTERS_MAX = 255
BURST = 100
INTERVAL_S = 0.1
"""Limits of the lines: `BURST` at once, and one per interval in the long run."""


class MetadataEvents:
    """Its method `changed` is a listener of the loader.

    is_active: whether this node is the active controller. is_silent: whether the session of this
    broker expired. session_timeout_ms: the time after which it does. clock: monotonic seconds.
    """

    def __init__(
        self,
        is_active: Callable[[], bool],
        is_silent: Callable[[int], bool],
        session_timeout_ms: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._is_active = is_active
        self._is_silent = is_silent
        self._timeout_s = session_timeout_ms / 1000
        self._brokers: Mapping[int, Broker] = {}
        self._log = LimitedLog(LOGGER, burst=BURST, interval_s=INTERVAL_S, clock=clock)

    def changed(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Log what has changed, if this node is the active controller."""
        is_active = self._is_active()
        if delta.brokers:
            before, self._brokers = self._brokers, dict(image.cluster.brokers)
            for broker_id in sorted(delta.brokers) if is_active else ():
                self._broker_changed(broker_id, before.get(broker_id))
        if not is_active:
            return
        if delta.topics_created:
            self._topics_created(image, delta.topics_created)
        if delta.topics_deleted:
            self._topics_deleted(delta.topics_deleted)

    # --- brokers ----------------------------------------------------------------------------------

    def _broker_changed(self, broker_id: int, before: Broker | None) -> None:
        now = self._brokers.get(broker_id)
        if now is None:
            if before is not None:
                self._note(broker_id, "broker %d at %s unregistered", before)
        elif before is None or before.broker_epoch != now.broker_epoch:
            again = "" if before is None else " again"
            self._note(
                broker_id,
                f"broker %d at %s registered{again}, with epoch %d",
                now,
                now.broker_epoch,
            )
            if not now.fenced:
                self._note(broker_id, "broker %d at %s unfenced", now)
        elif now.fenced and not before.fenced:
            self._fenced(broker_id, before)
        elif before.fenced and not now.fenced:
            self._note(broker_id, "broker %d at %s unfenced", now)
        elif now.in_controlled_shutdown and not before.in_controlled_shutdown:
            self._note(broker_id, "broker %d at %s began its controlled shutdown", now)

    def _fenced(self, broker_id: int, before: Broker) -> None:
        if self._is_silent(broker_id):
            self._note(
                broker_id,
                "broker %d at %s fenced: no heartbeat for %g s",
                before,
                self._timeout_s,
                level=logging.WARNING,
            )
        elif before.in_controlled_shutdown:
            self._note(broker_id, "broker %d at %s fenced: its controlled shutdown is over", before)
        else:
            self._note(broker_id, "broker %d at %s fenced, as it requested", before)

    def _note(
        self, broker_id: int, text: str, broker: Broker, *more: object, level: int = logging.INFO
    ) -> None:
        self._log.log(level, broker_id, text, broker_id, _address(broker), *more)

    # --- topics -----------------------------------------------------------------------------------

    def _topics_created(self, image: MetadataImage, created: Iterable[str]) -> None:
        topics = image.topics
        found = {
            topics.names[topic_id]: topic_id for topic_id in created if topic_id in topics.names
        }
        counts = {name: len(topics.partitions(found[name])) for name in found}
        if len(found) <= SINGLE_LINES_MAX:
            for name in sorted(found):
                text = "topic %s created: id %s, %d partitions"
                self._note_topic(text, name, found[name], counts[name])
            return
        text = "%d topics with %d partitions created: %s"
        self._note_topic(text, len(found), sum(counts.values()), _named(found))

    def _topics_deleted(self, deleted: Mapping[str, str]) -> None:
        if len(deleted) <= SINGLE_LINES_MAX:
            for topic_id, name in sorted(deleted.items(), key=lambda each: each[1]):
                self._note_topic("topic %s deleted: id %s", name, topic_id)
            return
        self._note_topic("%d topics deleted: %s", len(deleted), _named(deleted.values()))

    def _note_topic(self, text: str, *arguments: object) -> None:
        self._log.log(logging.INFO, "topics", text, *arguments)


def _address(broker: Broker) -> str:
    """The address of the first listener."""
    if not broker.end_points:
        return "an unknown address"
    first = broker.end_points[0]
    return format_address(first.host[:HOST_CHARACTERS_MAX], first.port)


def _named(names: Iterable[str]) -> str:
    """The first names, and how many there are beyond these."""
    ordered = sorted(names)
    shown = ", ".join(ordered[:NAMES_MAX])
    more = len(ordered) - NAMES_MAX
    return f"{shown} and {more} more" if more > 0 else shown
