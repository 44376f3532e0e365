"""What the operator observes: pods, the leader's view of the quorum, and a migration's progress."""

from __future__ import annotations

import contextlib
import datetime as dt
import socket
import threading
import time
from typing import Any

import pytest
from quorate.common.error_codes import ErrorCode
from quorate.raft.messages import CurrentLeader, DescribeQuorumResponse, ReplicaStatus
from quorate.raft.types import ReplicaKey, Voter, VoterSet
from quorate.records.metadata import ZkMigrationState
from quorate.rpc.wire.values import QuorumDescription
from quorate_operator.kube import pod_state
from quorate_operator.objects.resource import QuorumResource
from quorate_operator.observation import observe, progress, status
from quorate_operator.observation.progress import (
    PAGE_BYTES_MAX,
    MigrationProgress,
    parse_progress,
    read_progress,
)
from quorate_operator.planning.plan import Observed, OperatorPlan

from tests.unit.operator.test_operator_objects import MIGRATION, resource

# --- pods -----------------------------------------------------------------------------------------

WRONG = (
    "quorate: error: zookeeper.connect=zk:2181: /cluster/id contains x, but this quorum was "
    "formatted for the cluster y: correct the ensemble or its chroot, "
    "or format the quorum for that cluster"
)


def pod(now: dict[str, Any], ended: str = "") -> dict[str, Any]:
    """A pod of one container. ended: what its process said last when it failed before."""
    before = {"terminated": {"exitCode": 1, "message": f"INFO: more\n{ended}\n"}} if ended else {}
    container = {"state": now, "lastState": before}
    return {"status": {"phase": "Running", "containerStatuses": [container]}}


def started(seconds_ago: float) -> dict[str, Any]:
    at = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=seconds_ago)
    return {"running": {"startedAt": at.strftime("%Y-%m-%dT%H:%M:%SZ")}}


def test_what_a_process_ended_with_is_told() -> None:
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    assert pod_state.pod_problem(pod(waiting)) == "CrashLoopBackOff: back-off 10s"
    assert pod_state.pod_problem(pod(waiting, WRONG)) == f"CrashLoopBackOff: {WRONG}"
    ended = {"terminated": {"exitCode": 1, "message": WRONG}}
    assert pod_state.pod_problem(pod(ended)) == WRONG
    assert pod_state.pod_problem(pod(started(1), WRONG)) == ""


def test_a_wrong_ensemble_is_remembered_until_the_next_process_has_lived() -> None:
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    wrong = WRONG.removeprefix("quorate: error: ")
    assert pod_state.wrong_ensemble(pod(waiting, WRONG)) == wrong
    assert pod_state.wrong_ensemble(pod(started(5), WRONG)) == wrong
    assert not pod_state.wrong_ensemble(pod(started(60), WRONG))
    assert not pod_state.wrong_ensemble(pod(waiting, "quorate: error: the disk is full"))
    assert not pod_state.wrong_ensemble(pod(started(5)))


# --- the leader's view ----------------------------------------------------------------------------


def described(*caught_up_ms: int, error: ErrorCode = ErrorCode.NONE) -> QuorumDescription:
    keys = [ReplicaKey(n, f"d{n}") for n in range(len(caught_up_ms))]
    states = tuple(
        ReplicaStatus(key, 10, 100_000, at) for key, at in zip(keys, caught_up_ms, strict=True)
    )
    voters = VoterSet.of(Voter(key) for key in keys[:3])
    response = DescribeQuorumResponse(
        error, CurrentLeader(7, 0), 10, 1, states[:3], states[3:], voters, voters
    )
    return QuorumDescription("c", "x:1", response)


def test_caught_up_is_measured_by_the_leaders_clock() -> None:
    view = observe.leader_view(described(100_000, 99_000, 90_000, 98_000, -1))
    assert view is not None
    assert view.leader == ReplicaKey(0, "d0")
    assert {key.id for key in view.caught_up} == {0, 1, 3}
    assert {key.id for key in view.voters} == {0, 1, 2}


def test_only_the_leaders_view_counts() -> None:
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert observe.leader_view(described(1, 1, 1, error=code)) is None
    assert observe.leader_view(None) is None


def test_the_last_voters_are_those_of_the_later_epoch() -> None:
    quorum = QuorumResource("q", "lab", status={"voterSet": ["0-x", "1-y"], "leader": {"epoch": 9}})
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    old = described(1, 1, 1, error=code)
    assert {k.id for k in observe._known_voters(quorum, old)} == {0, 1}
    assert observe._known_voters(quorum, None) == {ReplicaKey(0, "x"), ReplicaKey(1, "y")}


# --- how far a migration is -----------------------------------------------------------------------


def test_the_progress_is_what_the_leader_says() -> None:
    text = (
        "# HELP quorate_zkmigrationstate 0: no migration, 1: in progress\n"
        "# TYPE quorate_zkmigrationstate gauge\n"
        "quorate_zkmigrationstate 2.0\n"
        'quorate_migratingzkbrokercount{a="b"} 3.0\n'
        "quorate_high_watermark 77.0\n"
    )
    assert parse_progress(text) == MigrationProgress(ZkMigrationState.PRE_MIGRATION, 3)
    assert parse_progress(text.replace("state 2.0", "state 9.0")) is None
    assert parse_progress("quorate_high_watermark 77.0\n") is None, "who does not lead"
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    assert read_progress("127.0.0.1", port) is None


@pytest.mark.parametrize("number", ["1.2.3", "9" * 400, "9" * 5_000, "2147483648000", ".", "1e1"])
def test_a_number_that_no_leader_reports_is_no_progress(number: str) -> None:
    """A pod that somebody has taken over chooses the page: the operator goes on without it."""
    page = f"quorate_zkmigrationstate 2.0\nquorate_migratingzkbrokercount {number}\n"
    assert parse_progress(page) is None


def test_a_page_is_parsed_in_linear_time() -> None:
    page = "quorate_zkmigrationstate{\n" * (PAGE_BYTES_MAX // 26)
    began_s = time.process_time()
    assert parse_progress(page) is None
    assert time.process_time() - began_s < 5.0


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"]
)
def test_a_page_that_comes_byte_by_byte_is_given_up(
    monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    """Each byte comes within the timeout, so only a deadline ends the response."""
    monkeypatch.setattr(progress, "TIMEOUT_S", 0.5)
    served_s = 20.0

    def serve(listening: socket.socket) -> None:
        connected, _ = listening.accept()
        with connected, contextlib.suppress(OSError):
            connected.sendall(head)
            for _ in range(int(served_s / 0.1)):
                connected.sendall(b"x")
                time.sleep(0.1)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, args=(listening,), daemon=True).start()
        began_s = time.monotonic()
        assert read_progress("127.0.0.1", listening.getsockname()[1]) is None
        assert time.monotonic() - began_s < served_s / 2


def test_what_was_said_last_stays_in_the_status() -> None:
    told = {"state": "MIGRATION", "brokersInZooKeeperMode": 2}
    quorum = QuorumResource(
        "q", "lab", spec={"image": "x", **MIGRATION}, status={"migration": told}
    )
    silent = observe.Snapshot(Observed())
    assert status.build(quorum, silent, OperatorPlan())["migration"] == told
    seen = observe.Snapshot(
        Observed(), progress=MigrationProgress(ZkMigrationState.POST_MIGRATION, 0)
    )
    over = {"state": "POST_MIGRATION", "brokersInZooKeeperMode": 0}
    assert status.build(quorum, seen, OperatorPlan())["migration"] == over
    assert status.build(resource(), silent, OperatorPlan())["migration"] is None
