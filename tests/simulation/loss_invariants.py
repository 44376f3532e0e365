"""The invariants of what a replica lost or forgot: `RequiredEnd`, `LossIsTold`, `ResignationIsTold`
(`invariants.py` says what they are).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorate.common.error_codes import ErrorCode
from quorate.raft.messages import EndQuorumEpochRequest, FetchResponse
from quorate.raft.outputs import (
    AppendBatches,
    HighWatermarkAdvanced,
    PersistRequiredEnd,
    RoleName,
    Send,
    TruncateLog,
)
from quorate.raft.roles import Follower
from quorate.raft.types import RequiredEnd

from tests.replica.errors import InvariantError

if TYPE_CHECKING:
    from tests.simulation.node import SimNode

MOVES = (AppendBatches, TruncateLog, HighWatermarkAdvanced)


class LossInvariants:
    """Checks that need no more than the node."""

    @staticmethod
    def starts(node: SimNode) -> None:
        """A process has started; nothing that it wants is done yet."""
        others = [voter for voter in node.voters if voter.id != node.id and voter.endpoints]
        if node.core.role.name is not RoleName.RESIGNED or not others:
            return
        requests = [o.request for o in node.core.outputs if isinstance(o, Send)]
        ends = [r for r in requests if isinstance(r, EndQuorumEpochRequest)]
        if len(ends) < len(others) or not all(r.preferred_candidates for r in ends):
            text = f"{node.key} led epoch {node.core.epoch} and tells {ends}"
            raise InvariantError("ResignationIsTold", text)

    def requires_end(self, node: SimNode, required_end: RequiredEnd | None) -> None:
        """A node stores which log end it must reach again, or that it has reached it."""
        old, log = node.disk.required_end, node.disk.log
        if required_end is not None or old is None:
            return
        end = old.end
        durable = log.batch_before(log.durable_end)
        epoch = durable.epoch if durable is not None else log.start.epoch
        if (epoch, log.durable_end) < (end.epoch, end.offset):
            text = f"{node.key} has reached {end}, on disk is {log}"
            raise InvariantError("RequiredEnd", text)

    @staticmethod
    def learns_of_loss(node: SimNode, response: FetchResponse) -> None:
        """A node got the answer to a Fetch: its leader tells what it acknowledged, or should."""
        core = node.core
        told = response.acknowledged
        lost, node.told_of_loss = node.told_of_loss, None
        is_of_leader = response.error is ErrorCode.NONE and response.leader.epoch == core.epoch
        if not is_of_leader or not isinstance(core.role, Follower):
            return
        if lost is not None and lost[0] == core.epoch and told is None:
            text = f"{node.key} acknowledged {lost[1]} in epoch {lost[0]} and hears {response}"
            raise InvariantError("LossIsTold", text)
        moves = [i for i, o in enumerate(core.outputs) if isinstance(o, MOVES)]
        if told is None or not moves:
            return
        known = [
            o.required_end for o in core.outputs[: moves[0]] if isinstance(o, PersistRequiredEnd)
        ]
        ends = [node.disk.log.last, *(r.end for r in [node.disk.required_end, *known] if r)]
        if max((end.epoch, end.offset) for end in ends) < (told.epoch, told.offset):
            text = f"{node.key} hears {told} and does {core.outputs}"
            raise InvariantError("RequiredEnd", text)
