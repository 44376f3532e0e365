"""Compares the entities of a checkpoint with those from replaying the log.

Both are digests, so a comparison holds two small values for each entity. The entities that differ
are then looked up by the digests of their names.

SCRAM credentials are excluded: when a user's credential is deleted, Kafka 4.3's own snapshots lose
other users' credentials of the same mechanism that the log still holds (as Kafka's golden
directories show).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from hashlib import blake2b

from quorate.metadata.entities import SCRAM, Data, StateReplay, fields_text

Things = frozenset[bytes]
"""Entities, each as the digest of its name and that of its fields."""
Entities = Mapping[tuple[str, str], Data]
"""The fields of entities, by kind and key."""
DIFFERENCES_MAX = 3
"""The maximum number of differing entities that a text describes."""
_FIELDS_LENGTH_MAX = 300
_DIGEST_BYTES = 16


def things_of(replay: StateReplay) -> Things:
    """The entities of a replay."""
    return frozenset(
        _digest(kind, key) + _digest(fields_text(fields))
        for kind, key, fields, _ in replay.rows()
        if kind != SCRAM
    )


def differing_names(ours: Things, theirs: Things) -> Set[bytes]:
    """The digests of the names of the entities that differ, or that only one side has."""
    return {thing[:_DIGEST_BYTES] for thing in ours ^ theirs}


def named(replay: StateReplay, wanted: Set[bytes]) -> Entities:
    """The entities of a replay of which the digests of the names are wanted."""
    return {
        (kind, key): fields
        for kind, key, fields, _ in replay.rows()
        if kind != SCRAM and _digest(kind, key) in wanted
    }


def differences_text(ours: Entities, theirs: Entities) -> str:
    """What differs between the entities of a checkpoint and those that are expected."""
    names = sorted({*ours, *theirs})
    shown = [
        f"{kind} {key} is {_shown(ours.get((kind, key)))}, but {_shown(theirs.get((kind, key)))}"
        for kind, key in names[:DIFFERENCES_MAX]
    ]
    if len(names) > len(shown):
        shown.append(f"{len(names) - len(shown)} more differ")
    return "; ".join(shown)


def _digest(*texts: str) -> bytes:
    data = "\0".join(texts).encode(errors="surrogatepass")
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()


def _shown(fields: Data | None) -> str:
    if fields is None:
        return "missing"
    return json.dumps(fields, separators=(",", ":"))[:_FIELDS_LENGTH_MAX]
