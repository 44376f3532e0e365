"""Identifiers of nodes and directories, UUIDs in Kafka's text form, and names that Kafka reserves.

The text form of a UUID has 22 characters of unpadded url-safe base64. A directory id is such a
UUID (KIP-858).
"""

from __future__ import annotations

import base64
import binascii
import re

Buffer = bytes | bytearray | memoryview

DirectoryId = str
UUID_BYTES = 16
UUID_CHARACTERS = 22
ZERO_UUID: DirectoryId = "A" * UUID_CHARACTERS

NO_NODE = -1
"""The id that stands for "no replica" on disk and on the wire."""
NODE_ID_MAX = 2**31 - 1

INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")
"""The topics that Kafka's brokers keep for groups, transactions and share groups."""

_UUID = re.compile(r"[A-Za-z0-9_-]{21}[AQgw]", re.ASCII)


def is_uuid(text: str) -> bool:
    """Whether the text is a UUID in Kafka's text form."""
    return _UUID.fullmatch(text) is not None


def uuid_to_bytes(text: str) -> bytes:
    """The sixteen bytes of a UUID's 22 characters. ValueError when `text` is no such thing."""
    if len(text) != UUID_CHARACTERS:
        raise ValueError(f"a UUID has {UUID_CHARACTERS} characters, not {len(text)}: {text!r}")
    try:
        raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"not a url-safe base64 UUID: {text!r}") from error
    if uuid_from_bytes(raw) != text:
        raise ValueError(f"not the canonical form of a UUID: {text!r}")
    return raw


def uuid_from_bytes(raw: Buffer) -> str:
    """The 22 characters of a UUID's sixteen bytes."""
    if len(raw) != UUID_BYTES:
        raise ValueError(f"a UUID has {UUID_BYTES} bytes, not {len(raw)}")
    return base64.urlsafe_b64encode(raw)[:UUID_CHARACTERS].decode("ascii")
