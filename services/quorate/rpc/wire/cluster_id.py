"""The metadata of a call that names the cluster for which it is meant.

1. A client sends the id of its cluster with each call. A server of another cluster ends the call
   with FAILED_PRECONDITION, before anything else is done, and says so (`foreign_text`).
2. A client that does not know the id yet sends an empty one. The server then reports its own in the
   initial metadata of the response.
3. Without this metadata nothing is checked: earlier clients send none, and replicas name the
   cluster in their requests. Earlier servers ignore it.

A stream names its cluster once, so its messages cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, unquote

from quorate.common.error_codes import ErrorCode

CLUSTER_ID_KEY = "quorate-cluster-id"

Metadata = tuple[tuple[str, str], ...]

_FOREIGN = ErrorCode.INCONSISTENT_CLUSTER_ID.name
_SHOWN_CHARS_MAX = 64


def cluster_metadata(cluster_id: str) -> Metadata:
    """The metadata with this id; percent-encoded, since metadata is printable ASCII."""
    return ((CLUSTER_ID_KEY, quote(cluster_id)),)


def cluster_in(metadata: Iterable[Any] | None) -> str | None:
    """The id in the metadata of a call, None if there is none."""
    for key, value in metadata or ():
        if key == CLUSTER_ID_KEY:
            return unquote(value)
    return None


def foreign_text(own: str, wanted: str) -> str:
    """Why a node of the cluster `own` rejects a call that is meant for the cluster `wanted`."""
    return f"{_FOREIGN} the node belongs to cluster {own}, not {wanted[:_SHOWN_CHARS_MAX]}"


def is_foreign_text(text: str) -> bool:
    """Whether a node gave this reason because it belongs to another cluster."""
    return text.startswith(_FOREIGN)


def without_code(text: str) -> str:
    """The text without the name of the error."""
    return text.removeprefix(_FOREIGN).strip() or "the node belongs to another cluster"
