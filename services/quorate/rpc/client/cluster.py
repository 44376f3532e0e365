"""Which cluster a client belongs to, and the check that nodes belong to it.

An address may be reused: another cluster's node may listen where a client expects one of its own.

Rules:
1. The client is created with the cluster's id, or takes that of the node that answers first. It
   never changes afterwards.
2. A call names the cluster that the client knows, and a node of another one rejects it unexecuted.
3. A call that was sent before the id was known is checked once the node reports its id. The answer
   of a node of another cluster is dropped, whatever it was.
4. A node of an earlier version neither checks nor reports anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quorate.common.error_codes import ErrorCode
from quorate.rpc.errors import AdminError, TransportError, TransportKind
from quorate.rpc.wire.cluster_id import (
    cluster_in,
    cluster_metadata,
    foreign_text,
    is_foreign_text,
    without_code,
)


class Cluster:
    """The cluster of one client. id: empty until it is known."""

    def __init__(self, cluster_id: str = "") -> None:
        self.id = cluster_id
        self.metadata = cluster_metadata(cluster_id)
        """Sent with each call."""
        self._source = ""

    async def check(self, address: str, call: Any) -> None:
        """Apply rule 3 to a call that has been answered. Raises TransportError."""
        self.learn(address, cluster_in(await call.initial_metadata()) or "")

    def learn(self, address: str, reported: str) -> None:
        """Take the id that a node reports, if any, or compare it. TransportError if they differ."""
        if not reported:
            return
        if not self.id:
            self.id = reported
            self.metadata = cluster_metadata(reported)
            self._source = f", that of {address}, which answered first"
        if reported != self.id:
            text = foreign_text(reported, self.id) + self._source
            raise TransportError(TransportKind.OTHER_CLUSTER, address, text)


def check_not_foreign(attempts: Mapping[str, str]) -> None:
    """AdminError if all nodes that were tried belong to another cluster.

    attempts: addresses, and why each has not served the request.
    """
    if attempts and all(map(is_foreign_text, attempts.values())):
        each = (f"{address}: {without_code(text)}" for address, text in attempts.items())
        raise AdminError(ErrorCode.INCONSISTENT_CLUSTER_ID, "; ".join(each))
