"""Limits on text from clients. Source: Kafka's STRING type, Topic.validate."""

from __future__ import annotations

import re

TEXT_BYTES_MAX = 32_767
"""The maximum length of a string in a metadata record, in bytes of UTF-8."""

TOPIC_NAME_MAX = 249

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def fits(*texts: str | None) -> bool:
    """Whether a record can hold each of the texts."""
    try:
        return all(text is None or len(text.encode()) <= TEXT_BYTES_MAX for text in texts)
    except UnicodeEncodeError:
        return False


def topic_name_fault(name: str) -> str | None:
    """Why a topic name is invalid, None if it is valid."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > TOPIC_NAME_MAX:
        return f"the length of '{name[:40]}…' is longer than the max allowed length 249"
    if not _TOPIC_NAME.fullmatch(name):
        return (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' "
            "and '-'"
        )
    return None


def collision_key(name: str) -> str:
    """Topics cannot share a collision key, because metric names could not distinguish them."""
    return name.replace(".", "_")
