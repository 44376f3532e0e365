"""Compares what the two controllers answered and wrote for one request.

What is equal but for ids is equal (`translating`). Otherwise both are decoded, and what each
controller chose or measured itself is replaced: ids by `Aliases`, times by `Moment`. What then
differs is a `Difference`.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import re
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Final

from quorate.bridge.messages import schemas as s
from quorate.metadata.describe import effective_topic_config
from quorate.metadata.image.metadata_image import AnyRecord, type_of
from quorate.metadata.image.partitions import NO_LEADER
from quorate.records import metadata as rec
from quorate.records.batch import BatchHeader

from tests.kafka_differential.requests import AUTOMATIC
from tests.kafka_differential.side import EPOCH_FIELDS, ID_PATTERN, NEVER, Aliases, Batch, Side
from tests.kafka_differential.translating import same_batches, same_response
from tests.wire.compared_clusters import CONTROLLER

TOLERANCE_MS: Final = 10_000
"""How far apart the two controllers may have handled a request."""
TOKEN_TIMES: Final = ("issue_timestamp", "max_timestamp", "expiration_timestamp")
SETS: Final = frozenset({"eligible_leader_replicas", "last_known_elr"})
"""Fields whose order has no meaning; in Kafka it is that of a hash table."""
VARIABLE: Final = re.compile(r"'[^']*'|\[[^]]*\]|-?\d+(\.\d+)?")
"""What of a message depends on the request."""
UNKNOWN_SERVER_ERROR: Final = -1
KAFKA_FAILS: Final = "Kafka's controller fails"
"""The difference if Kafka's controller fails as a whole; it resigns, so that the rest is void."""
WITH_LAST_KNOWN: Final = "with an older last known leader"
"""Of the change by which a partition loses its leader while it has a last known leader, too."""
MOVED_LAST_KNOWN: Final = "that moves a last known leader"
"""Of the change by which the last known leader leaves the replicas, or is added again."""
OTHER_FACTOR: Final = "of another replication factor than that of partition 0"
"""Of the change of such a partition, if min.insync.replicas is not below both."""
AGAIN_UNCLEAN: Final = "of an unclean election before the last one was recovered from"
"""Of the change by which a partition that has not recovered gets a leader out of sync."""
TWICE: Final = "that changes a partition twice"
TEMPLATE_MAX: Final = 120


class Moment:
    """Milliseconds since 1970. Moments are equal if they are close."""

    def __init__(self, at_ms: float) -> None:
        self._at_ms = at_ms

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Moment) and math.isclose(
            self._at_ms, other._at_ms, rel_tol=0.0, abs_tol=TOLERANCE_MS
        )

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "Moment"


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """A difference. what: response, records, order, batches or image. detail: the fields that
    differ, without their values where these are arbitrary. kafka, quorate: both, as text.
    """

    request: str
    what: str
    detail: str
    kafka: str
    quorate: str

    @property
    def kind(self) -> str:
        return f"{self.request}: {self.what}: {self.detail}"


# --- values ---------------------------------------------------------------------------------------


def plain(value: Any, aliases: Aliases, name: str = "") -> Any:
    """A message or record as tuples, without what the controller chose. name: of the field."""
    if isinstance(value, str):
        return _text(value, aliases) if len(value) >= 22 else value
    if isinstance(value, uuid.UUID):
        text = s.uuid_text(value)
        found = aliases.texts.get(text, text)
        # A topic that would be created gets an id, too.
        return "none" if found == text and name == "topic_id" and value != NEVER else found
    if isinstance(value, datetime.datetime):
        return Moment(value.timestamp() * 1000)
    if isinstance(value, tuple) and name not in SETS:
        return tuple(plain(each, aliases) for each in value)
    if name in EPOCH_FIELDS and isinstance(value, int):
        return aliases.epochs.get(value, value)
    if name in SETS and isinstance(value, tuple):
        return tuple(sorted(value))
    if name in TOKEN_TIMES:
        return Moment(value)
    if name == "hmac":
        return len(value)
    if dataclasses.is_dataclass(value):
        return (
            type(value).__name__,
            *(
                (each.name, plain(getattr(value, each.name), aliases, each.name))
                for each in dataclasses.fields(value)
            ),
        )
    return int(value) if type(value) is s.KafkaError else value


def _text(text: str, aliases: Aliases) -> str:
    return ID_PATTERN.sub(lambda found: aliases.texts.get(found[0], found[0]), text)


def paths(kafkas: Any, quorates: Any, at: str = "") -> Iterator[str]:
    """Where two plain values differ, and how they do if the values are numbers or short."""
    if kafkas == quorates:
        return
    if isinstance(kafkas, tuple) and isinstance(quorates, tuple):
        if len(kafkas) == len(quorates):
            is_field = len(kafkas) == 2 and isinstance(kafkas[0], str) and kafkas[0] == quorates[0]
            if is_field:
                yield from paths(kafkas[1], quorates[1], f"{at}.{kafkas[0]}" if at else kafkas[0])
                return
            for mine, yours in zip(kafkas, quorates, strict=True):
                yield from paths(mine, yours, at)
            return
        yield f"{at} has {_number(kafkas, quorates)}"
        return
    if at.endswith("message") or not (_is_short(kafkas) and _is_short(quorates)):
        yield f"{at} of no leader" if kafkas == (NO_LEADER,) else at
        return
    yield f"{at} {kafkas}/{quorates}"


def _number(kafkas: tuple[Any, ...], quorates: tuple[Any, ...]) -> str:
    return "more items" if len(kafkas) < len(quorates) else "fewer items"


def _is_short(value: Any) -> bool:
    return value is None or isinstance(value, bool | int)


def detail_of(kafkas: Any, quorates: Any) -> str:
    return ", ".join(dict.fromkeys(paths(kafkas, quorates)))


# --- responses ------------------------------------------------------------------------------------


def compare_responses(
    request: str, key: tuple[int, int], frames: Sequence[bytes], sides: Sequence[Side]
) -> Difference | None:
    """The difference of two responses. key: API key and version. frames: Kafka's first."""
    kafkas, quorates = frames
    if same_response(frames, [side.aliases for side in sides]):
        return None
    if not kafkas or not quorates:
        who = "Kafka's" if not kafkas else "Quorate's"
        detail = f"{who} controller closes the connection"
        return Difference(request, "response", detail, repr(kafkas), repr(quorates))
    bodies = [
        plain(s.read_response(*key, frame)[1], side.aliases)
        for frame, side in zip(frames, sides, strict=True)
    ]
    if bodies[0] == bodies[1]:
        return None
    if ("error_code", UNKNOWN_SERVER_ERROR) in bodies[0]:
        return Difference(request, KAFKA_FAILS, "", *map(repr, bodies))
    ordered = [_ordered(each) for each in bodies]
    if ordered[0] == ordered[1]:
        return Difference(request, "response order", "", repr(bodies[0]), repr(bodies[1]))
    messages = ", ".join(dict.fromkeys(_messages(*ordered)))
    silent = [_without_messages(each) for each in ordered]
    what, detail = "response", detail_of(*silent)
    if silent[0] == silent[1]:
        what, detail = "message", messages
    return Difference(request, what, detail, repr(ordered[0]), repr(ordered[1]))


def _ordered(value: Any) -> Any:
    """A plain value whose arrays are sorted, by what their items are about rather than errors."""
    if not isinstance(value, tuple):
        return value
    found = tuple(map(_ordered, value))
    if found and all(map(_is_structure, found)):
        return tuple(sorted(found, key=_subject))
    return found


def _is_structure(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) > 1 and _is_field(value[1])


def _is_field(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str)


def _subject(value: Any) -> str:
    return repr([each for each in value if not (_is_field(each) and "error" in each[0])])


def _without_messages(value: Any) -> Any:
    if not isinstance(value, tuple):
        return value
    if _is_field(value) and value[0] == "error_message":
        return ("error_message", None)
    return tuple(map(_without_messages, value))


def _messages(kafkas: Any, quorates: Any) -> Iterator[str]:
    """The messages that differ, without numbers and names."""
    if kafkas == quorates or not isinstance(kafkas, tuple) or not isinstance(quorates, tuple):
        return
    if _is_field(kafkas) and kafkas[0] == "error_message":
        yield f"{_template(kafkas[1])} / {_template(quorates[1])}"
    for mine, yours in zip(kafkas, quorates, strict=False):
        yield from _messages(mine, yours)


def _template(message: str | None) -> str:
    return "none" if message is None else VARIABLE.sub("#", message)[:TEMPLATE_MAX]


# --- records --------------------------------------------------------------------------------------


def compare_records(
    request: str,
    batches: Sequence[Sequence[tuple[BatchHeader, Batch]]],
    sides: Sequence[Side],
    *,
    shape_only: bool = False,
) -> Difference | None:
    """The difference of what two controllers wrote. batches: of Kafka's controller first.

    shape_only: the request lets the controller place replicas, so only their numbers are compared.
    """
    kafkas, quorates = ([batch for _, batch in each] for each in batches)
    if same_batches(kafkas, quorates, [side.aliases for side in sides]):
        return None
    found = [
        [
            _plain_record(value, record, side, shape_only)
            for batch in each
            for value, record in batch
        ]
        for each, side in zip((kafkas, quorates), sides, strict=True)
    ]
    texts = [[_shown(record) for record in each] for each in found]
    if _changes_twice(kafkas) or _changes_twice(quorates):
        request = f"{request} {TWICE}"
    if found[0] != found[1]:
        shown = [
            f"{each} before: {_before(written, side)}"
            for each, written, side in zip(texts, (kafkas, quorates), sides, strict=True)
        ]
        if sorted(texts[0]) == sorted(texts[1]):
            return Difference(request, "order", _types(kafkas), *shown)
        return Difference(request, "records", _records_detail(*found), *shown)
    sizes = [[len(batch) for batch in each] for each in (kafkas, quorates)]
    if sizes[0] != sizes[1]:
        detail = f"{len(sizes[0])}/{len(sizes[1])} batches"
        return Difference(request, "batches", detail, *map(repr, sizes))
    return None


def _plain_record(value: bytes, record: AnyRecord, side: Side, shape_only: bool) -> Any:
    """A record as a plain value, with the length of its encoding."""
    if shape_only and isinstance(record, rec.PartitionRecord):
        return _shape(record, side)
    if isinstance(record, rec.RegisterControllerRecord | rec.RegisterBrokerRecord):
        # Kafka's controllers write the features in the order of a hash table.
        features = tuple(sorted(record.features, key=lambda each: each.name))
        record = dataclasses.replace(record, features=features)
    return (_type(record, side), plain(record, side.aliases), len(value))


def _type(record: AnyRecord, side: Side) -> str:
    """The type of a record, with what a change of a partition has that is a reason to differ."""
    name = type_of(record)
    if not isinstance(record, rec.PartitionChangeRecord):
        return name
    topics = side.image.topics
    before = topics.partition(record.topic_id, record.partition_id)
    first = topics.partition(record.topic_id, 0)
    if before is None or first is None:
        return name
    replicas = record.replicas or before.replicas
    moved = set(before.replicas) ^ set(replicas)
    is_moved = not moved.isdisjoint(before.last_known_elr or ())
    if before.leader_recovery_state and record.isr and not set(record.isr) & set(before.isr):
        return f"{name} {AGAIN_UNCLEAN}" + (f", {MOVED_LAST_KNOWN}" if is_moved else "")
    topic = topics.names[record.topic_id]
    min_isr = int(effective_topic_config(side.image, topic, "min.insync.replicas") or 1)
    if min(min_isr, len(replicas)) != min(min_isr, len(first.replicas)):
        return f"{name} {OTHER_FACTOR}"
    if not before.last_known_elr:
        return name
    if is_moved:
        return f"{name} {MOVED_LAST_KNOWN}"
    if record.leader == NO_LEADER and before.leader != NO_LEADER:
        return f"{name} {WITH_LAST_KNOWN}"
    return name


def _shape(record: rec.PartitionRecord, side: Side) -> Any:
    brokers = side.image.cluster.brokers
    racks = {brokers[each].rack for each in record.replicas}
    is_first = record.leader == next(each for each in record.replicas if each in record.isr)
    numbers = (len(record.replicas), len(record.isr), len(record.directories), len(racks))
    rest = dataclasses.replace(record, replicas=(), isr=(), directories=(), leader=0)
    return (type_of(record), plain(rest, side.aliases), *numbers, is_first)


def _shown(record: Any) -> str:
    return f"{record[0]}{record[1][1:]}"


def _before(batches: Sequence[Batch], side: Side) -> Sequence[str]:
    """What the brokers were, and the partitions that are changed."""
    brokers = [
        f"{each.broker_id}: fenced {each.fenced}, directories {each.log_dirs}"
        for each in side.image.cluster.brokers.values()
    ]
    return brokers + [
        repr(side.image.topics.partition(record.topic_id, record.partition_id))
        for batch in batches
        for _, record in batch
        if isinstance(record, rec.PartitionChangeRecord)
    ]


def _changes_twice(batches: Sequence[Batch]) -> bool:
    changed = [
        (record.topic_id, record.partition_id)
        for batch in batches
        for _, record in batch
        if isinstance(record, rec.PartitionChangeRecord)
    ]
    return len(set(changed)) < len(changed)


def _types(batches: Sequence[Batch]) -> str:
    return ", ".join(dict.fromkeys(type_of(record) for batch in batches for _, record in batch))


def _records_detail(kafkas: Sequence[Any], quorates: Sequence[Any]) -> str:
    """How two lists of plain records differ, by their types."""
    kafkas, quorates = sorted(kafkas, key=repr), sorted(quorates, key=repr)
    types = [[each[0] for each in side] for side in (kafkas, quorates)]
    if types[0] == types[1]:
        pairs = zip(kafkas, quorates, strict=True)
        return ", ".join(
            dict.fromkeys(
                f"{mine[0]}.{detail_of(mine[1:], yours[1:])}"
                for mine, yours in pairs
                if mine != yours
            )
        )
    names = list(dict.fromkeys(types[0] + types[1]))
    counts = [
        f"{name} {'more' if types[0].count(name) < types[1].count(name) else 'fewer'}"
        for name in names
        if types[0].count(name) != types[1].count(name)
    ]
    return ", ".join(counts) or "order of types"


# --- images ---------------------------------------------------------------------------------------


def compare_images(sides: Sequence[Side]) -> Difference | None:
    """The difference of the two images."""
    kafkas, quorates = map(_contents, sides)
    if kafkas == quorates:
        return None
    only = [
        sorted(set(mine) - set(yours)) for mine, yours in ((kafkas, quorates), (quorates, kafkas))
    ]
    types = dict.fromkeys(each.partition(",")[0].strip("('") for each in (*only[0], *only[1]))
    return Difference("image", "records", ", ".join(types), *map(repr, only))


def differing(sides: Sequence[Side]) -> list[tuple[Side, AnyRecord]]:
    """The records that only one of the images has, each with its side."""
    first, second = (
        {repr(plain(each, side.aliases)): each for each in _records(side)} for side in sides
    )
    return [
        (side, record)
        for side, mine, yours in ((sides[0], first, second), (sides[1], second, first))
        for text, record in mine.items()
        if text not in yours
    ]


def _contents(side: Side) -> list[str]:
    return sorted(repr(plain(each, side.aliases)) for each in _records(side))


def _records(side: Side) -> Iterator[AnyRecord]:
    """What an image has, without the controller's own registration, without the replicas that it
    placed itself, and without the mark that Kafka's nodes use the quorum, which Quorate's
    controllers alone write.
    """
    names = side.image.topics.names
    for each in side.image.records():
        is_own = getattr(each, "controller_id", None) == CONTROLLER
        is_placed = isinstance(each, rec.PartitionRecord) and names[each.topic_id].startswith(
            AUTOMATIC
        )
        if not is_own and not is_placed and not isinstance(each, rec.NoOpRecord):
            yield each
