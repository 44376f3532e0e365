"""Executing the outputs of the protocol on a `SimNode`: what the simulation adds to the driver of
every replica, which is the trace, the oracle, and the faults that wait for an output.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from quorate.common.error_codes import ErrorCode
from quorate.raft.messages import (
    AdminResponse,
    FetchRequest,
    FetchResponse,
    VoteRequest,
    VoteResponse,
)
from quorate.raft.outputs import (
    AppendBatches,
    HighWatermarkAdvanced,
    InstallSnapshot,
    LeadershipAcquired,
    LeadershipLost,
    Notice,
    PersistElection,
    PersistRequiredEnd,
    Respond,
    RoleChanged,
    Send,
    SendAdmin,
    StartSnapshotFetch,
    TruncateLog,
    VotersChanged,
)

from tests.replica import driver
from tests.replica.errors import InvariantError

if TYPE_CHECKING:
    from tests.simulation.node import SimNode


NONE = ErrorCode.NONE
"""Looked up once: members of an enumeration are found slowly, and every answer is compared."""


def persist(node: SimNode, output: PersistElection) -> None:
    if node.trace is not None:
        node.trace(node, f"-> quorum-state {output.state}")
    node.oracle.persists(node, node.disk.election, output.state)
    driver.persist_election(node, output)
    if node.fuse_at_election >= 0:
        node.fuse, node.fuse_at_election = node.fuse_at_election, -1


def persist_required_end(node: SimNode, output: PersistRequiredEnd) -> None:
    if node.trace is not None:
        node.trace(node, f"-> required end {output.required_end}")
    node.oracle.requires_end(node, output.required_end)
    driver.persist_required_end(node, output)


def append(node: SimNode, output: AppendBatches) -> None:
    if node.trace is not None:
        node.trace(node, f"-> append {output.ticket} {output.batches}")
    if node.installing is not None:
        text = f"{node.key} appends while {node.installing} is about to replace the log"
        raise InvariantError("LogContract", text)
    node.oracle.appends(node, output.batches)
    driver.append(node, output)
    if node.disk.is_full and node.is_leading:
        node.scheduler.after(100, node.resign, node.life, "the disk is full")
    if not node.syncing:
        node.sync()


def truncate(node: SimNode, output: TruncateLog) -> None:
    if node.trace is not None:
        node.trace(node, f"-> truncate {output.ticket} to {output.end_offset}")
    node.oracle.truncates(node, output.end_offset)
    node.voters_moved = True
    driver.truncate(node, output)
    node.sync()


def send(node: SimNode, output: Send | SendAdmin) -> None:
    if node.trace is not None:
        node.trace(node, f"-> {output.endpoint.host} {output.request_id} "
                           f"{output.request}")  # fmt: skip
    request = output.request
    if request.__class__ is FetchRequest:
        # Every message passes here: the oracle is asked to fail, not to look.
        if request.offset > node.disk.log.durable_end:
            node.oracle.acknowledges_too_much(node, request)
    elif isinstance(request, VoteRequest):
        node.oracle.asks_for_votes(node, request)
    node.network.send(node, output)


def send_admin(node: SimNode, output: SendAdmin) -> None:
    node.cluster.pending_changes[id(output.request)] = output.request
    send(node, output)


def respond(node: SimNode, output: Respond) -> None:
    (source, life, request_id, request), response = node.take_response(output)
    if response.__class__ is FetchResponse:
        if request.epoch != response.leader.epoch and response.error is NONE:  # type: ignore[union-attr]
            node.oracle.answers_another_epoch(node, request, response)
        if node.trace is not None:
            node.trace(node, f"-> answer to {node.cluster.name(source)} {response}")
        node.network.respond(node, source, life, request_id, response)
        return
    if node.trace is not None:
        node.trace(node, f"-> answer to {node.cluster.name(source)} {response}")
    if isinstance(response, AdminResponse):
        node.oracle.answers_change(node, output.request_id, response)
    node.cluster.answered(node, request, response)
    if isinstance(response, VoteResponse):
        node.oracle.votes(node, request, response)  # type: ignore[arg-type]
    if source.__class__ is not node.__class__:
        source(node, request, response)
        return
    node.network.respond(node, source, life, request_id, response)


def committed(node: SimNode, output: HighWatermarkAdvanced) -> None:
    offset = output.offset
    if node.trace is not None:
        node.trace(node, f"-> committed to {offset}")
    if offset != node.loaded:
        node.oracle.commits(node, offset)
        node.high_watermark = offset
    appends = node.appends
    while appends and appends[0][0] + len(appends[0][1]) <= offset:
        node.cluster.clients.acknowledged(*appends.popleft())


def acquired(node: SimNode, output: LeadershipAcquired) -> None:
    node.oracle.leads(node, output.epoch)
    node.led_epoch = output.epoch
    node.heard.clear()
    node.is_leading = True
    node.cluster.elections += 1
    node.cluster.injector.elected(node)


def lost(node: SimNode, output: LeadershipLost) -> None:
    node.is_leading = False
    for _, values in node.appends:
        node.cluster.clients.unknown(values)
    node.appends.clear()


def role(node: SimNode, output: RoleChanged) -> None:
    if node.trace is not None:
        node.trace(node, f"-> {output.role} of epoch {output.epoch}, leader "
                           f"{output.leader_id}: {output.reason}")  # fmt: skip
    node.oracle.changes_role(node, output.role)
    if output.reason.startswith("leadership is transferred"):
        node.oracle.hands_over(node)


def voters(node: SimNode, output: VotersChanged) -> None:
    if node.trace is not None:
        node.trace(node, f"-> voters {output.voters}, removed {output.removed_self}")
    node.voters = output.voters
    node.voters_moved = True
    driver.change_voters(node, output)


def note(node: SimNode, output: Notice) -> None:
    if node.trace is not None:
        node.trace(node, f"-> note: {output.text}")


def start_snapshot(node: SimNode, output: StartSnapshotFetch) -> None:
    position = len(node.disk.part(output.snapshot))
    node.scheduler.after(100, node.position, node.life, output.snapshot, position)


def install(node: SimNode, output: InstallSnapshot) -> None:
    node.installing = output.snapshot
    node.cluster.injector.installs(node)
    delay = 300 + int(node.random.random() * node.cluster.install_us)
    node.scheduler.after(delay, node.installed, node.life, output.snapshot)


EXECUTORS: dict[type, Callable[[SimNode, Any], None]] = driver.EXECUTORS | {
    PersistElection: persist,
    PersistRequiredEnd: persist_required_end,
    AppendBatches: append,
    TruncateLog: truncate,
    Send: send,
    SendAdmin: send_admin,
    Respond: respond,
    HighWatermarkAdvanced: committed,
    LeadershipAcquired: acquired,
    LeadershipLost: lost,
    RoleChanged: role,
    VotersChanged: voters,
    StartSnapshotFetch: start_snapshot,
    InstallSnapshot: install,
    Notice: note,
}
"""Every output, and who executes it."""
