"""Whether two controllers did the same, but for ids that they chose: found out cheaply.

Most requests have the same effect. Quorate's ids and epochs are replaced by those of Kafka's
controller that have the same alias, and the rest must then be equal. What is not may still have the
same meaning, which `comparing` decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cache
from typing import Any, Final

from quorate.metadata.image.metadata_image import AnyRecord

from tests.kafka_differential.side import EPOCH_FIELDS, Aliases, Batch

CORRELATION_BYTES: Final = 4
UUID_BYTES: Final = 16


def same_batches(
    kafkas: Sequence[Batch], quorates: Sequence[Batch], aliases: Sequence[Aliases]
) -> bool:
    """Whether both wrote the same records, in the same batches and order.

    aliases: of Kafka's controller first.
    """
    first, second = aliases
    return len(kafkas) == len(quorates) and all(
        len(mine) == len(yours)
        and all(_same_record(*pair, first, second) for pair in zip(mine, yours, strict=True))
        for mine, yours in zip(kafkas, quorates, strict=True)
    )


def _same_record(
    kafkas: tuple[bytes, AnyRecord],
    quorates: tuple[bytes, AnyRecord],
    first: Aliases,
    second: Aliases,
) -> bool:
    if kafkas[0] == quorates[0]:
        return True
    mine, yours = kafkas[1], quorates[1]
    return (
        len(kafkas[0]) == len(quorates[0])
        and type(mine) is type(yours)
        # The version is no part of the equality of records.
        and mine.version == yours.version
        and mine == _with_kafkas_ids(yours, first, second)
    )


def _with_kafkas_ids(record: AnyRecord, first: Aliases, second: Aliases) -> AnyRecord:
    changes: dict[str, Any] = {}
    for name in _names(type(record)):
        value = getattr(record, name)
        if isinstance(value, str):
            changes[name] = first.text_of.get(second.texts.get(value, ""), value)
        elif name in EPOCH_FIELDS:
            changes[name] = first.epoch_of.get(second.epochs.get(value, ""), value)
    return replace(record, **changes)


@cache
def _names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind) if each.name != "version")


def same_response(frames: Sequence[bytes], aliases: Sequence[Aliases]) -> bool:
    """Whether two responses are the same. frames, aliases: Kafka's first. A frame is empty without
    a response.
    """
    kafkas, quorates = (frame[CORRELATION_BYTES:] for frame in frames)
    if kafkas == quorates:
        return True
    if len(kafkas) != len(quorates):
        return False
    first, second = aliases
    found = bytearray(quorates)
    at = 0
    while at + UUID_BYTES <= len(found):
        alias = second.uuids.get(quorates[at : at + UUID_BYTES])
        if alias is None:
            at += 1
            continue
        known = first.uuid_of.get(alias)
        if known is not None:
            found[at : at + UUID_BYTES] = known
        at += UUID_BYTES
    return found == kafkas
