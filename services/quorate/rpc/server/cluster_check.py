"""Rejects calls that are meant for another cluster; see `rpc.wire.cluster_id`."""

from __future__ import annotations

import logging

import grpc

from quorate.rpc.server.authorizer import Context
from quorate.rpc.server.request_validation import RejectionLog
from quorate.rpc.wire.cluster_id import cluster_in, cluster_metadata, foreign_text

REJECTIONS = RejectionLog(logging.getLogger(__name__))


async def check_cluster(context: Context, own: str, method: str) -> None:
    """End a call that names another cluster than `own`; report `own` to a caller that asks."""
    wanted = cluster_in(context.invocation_metadata())
    if wanted is None or wanted == own:
        return
    if not wanted:
        await context.send_initial_metadata(cluster_metadata(own))
        return
    text = foreign_text(own, wanted)
    REJECTIONS.say(method, context.peer(), text)
    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, text)
