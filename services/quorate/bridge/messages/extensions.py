"""Tagged fields that Quorate's controllers add to Kafka's messages, for each other.

Kafka's nodes skip tags that they do not know (KIP-482), and never send these. They carry what
Quorate's Raft knows and Kafka's does not: read rounds, the process behind a replica, and votes that
count only if all voters vote for the candidate. `schemas` uses these classes in place of kio's.

The high tags leave room for Kafka's own.
"""

# kio reads the types of fields at run time: annotations must not be strings.

import dataclasses
from typing import Any, Final

from kio.schema.fetch.v18 import FetchRequest, FetchResponse
from kio.schema.vote.v2 import VoteResponse

FIRST_TAG: Final = 10_000


def _extended(base: Any, *extra: tuple[str, str, Any]) -> Any:
    """A class with further tagged fields: (name, Kafka's type, default). Defaults are not sent."""
    fields = [
        (
            name,
            type(default),
            dataclasses.field(metadata={"kafka_type": kind, "tag": tag}, default=default),
        )
        for tag, (name, kind, default) in enumerate(extra, FIRST_TAG)
    ]
    return dataclasses.make_dataclass(
        base.__name__, fields, bases=(base,), frozen=True, slots=True, kw_only=True
    )


EXTENDED: Final[dict[Any, Any]] = {
    FetchRequest: _extended(
        FetchRequest,
        ("read_round", "int64", 0),
        ("incarnation", "uint64", 0),
    ),
    FetchResponse: _extended(
        FetchResponse,
        ("read_round", "int64", 0),
        ("acknowledged_offset", "int64", -1),
        ("acknowledged_epoch", "int32", -1),
    ),
    VoteResponse: _extended(VoteResponse, ("granted_if_all", "bool", False)),
}
"""Quorate's class of a message, by kio's. Field names are those of `raft.messages`."""
