"""The plan, step by step, and what holds for every plan of every observation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quorate.raft.types import ReplicaKey
from quorate_operator.naming import NODES_MAX, NodeIds
from quorate_operator.planning import plan as p

IDS = NodeIds(3000)
"""As where a cluster of Kafka moves in: what goes by ordinals and what goes by ids differs here."""
CLUSTER = "yFPgY5iXQYqr5sMxfdxu0Q"
OTHER = "h3JvRzZ1Tn6b5kq0m2xY8w"


def key(ordinal: int, disk: str = "a") -> ReplicaKey:
    return ReplicaKey(IDS.of(ordinal), f"{disk}{ordinal}")


def node(ordinal: int, disk: str | None = "a", **more: object) -> p.ObservedNode:
    """A node that answers; disk None: it is empty."""
    made = p.ObservedNode(
        ordinal,
        IDS.of(ordinal),
        uid=f"uid-{ordinal}",
        answers=True,
        directory_id=f"{disk}{ordinal}" if disk else None,
        cluster_id=CLUSTER if disk else "",
        ready=disk is not None,
    )
    return replace(made, **more)  # type: ignore[arg-type]


def silent(ordinal: int, **more: object) -> p.ObservedNode:
    made = p.ObservedNode(
        ordinal, IDS.of(ordinal), uid=f"uid-{ordinal}", problem="CrashLoopBackOff"
    )
    return replace(made, **more)  # type: ignore[arg-type]


def quorum(
    *nodes: p.ObservedNode, voters: int = 3, leader: int = 0, size: int | None = None
) -> p.Observed:
    """Voters 0 to voters - 1 on their first disks; all nodes on these are caught up."""
    keys = frozenset(key(ordinal) for ordinal in range(voters))
    caught_up = frozenset(each.key for each in nodes if each.answers and each.is_formatted)
    return p.Observed(
        ids=IDS,
        size=len(nodes) if size is None else size,
        nodes=nodes,
        view=p.LeaderView(key(leader), 5, keys, keys, caught_up),
        known_voters=keys,
        record=p.BootstrapRecord(CLUSTER),
        is_marked=True,
        known_cluster_id=CLUSTER,
    )


def without_leader(observed: p.Observed) -> p.Observed:
    return replace(observed, view=None)


def act(observed: p.Observed, replicas: int = 3, **desired: Any) -> p.Action | None:
    return p.plan(p.Desired(replicas, **desired), observed).action


def refusals(observed: p.Observed, replicas: int = 3, **desired: Any) -> list[p.Reason]:
    return [r.reason for r in p.plan(p.Desired(replicas, **desired), observed).refusals]


HEALTHY = quorum(node(0), node(1), node(2))


# --- step by step ---------------------------------------------------------------------------------


def test_nothing_is_done_when_all_is_as_wanted() -> None:
    assert p.plan(p.Desired(3), HEALTHY).is_done


def test_paused_and_deleted_change_nothing() -> None:
    assert refusals(HEALTHY, 5, paused=True) == [p.Reason.PAUSED]
    assert refusals(HEALTHY, 5, deleted=True) == [p.Reason.DELETED]


def test_brokers_get_their_rights_before_an_authorizer_asks_for_them() -> None:
    brokers = ("User:CN=broker-0",)
    lacking = replace(HEALTHY, brokers_without_rights=brokers)
    assert act(lacking) == p.GrantBrokers(brokers)
    outdated = quorum(*(node(n, outdated=True) for n in range(3)))
    assert act(replace(outdated, brokers_without_rights=brokers)) == p.GrantBrokers(brokers)
    assert act(without_leader(lacking)) is None


def test_names_that_are_taken_stop_what_is_not_begun_yet() -> None:
    taken = ("Service/q exists and is not controlled by Quorum q",)
    fresh = p.Observed(ids=IDS, stale=("Secret/q-ca",), conflicts=taken)
    assert refusals(fresh) == [p.Reason.CONFLICT]
    assert act(replace(fresh, size=3, stale=())) is None
    # A quorum that runs is healed all the same, and it is said.
    running = replace(HEALTHY, conflicts=taken)
    assert refusals(running) == [p.Reason.CONFLICT]
    replaced = replace(quorum(node(0), node(1, disk="new"), node(2)), conflicts=taken)
    assert isinstance(act(replaced), p.RemoveVoter)
    assert act(running, 5) == p.Resize(4, 3)
    assert act(replace(running, foreign_volumes=frozenset({3})), 5) is None
    assert act(replace(running, foreign_volumes=frozenset({4})), 5) == p.Resize(4, 3)
    silent_quorum = without_leader(replace(running, foreign_volumes=frozenset({3})))
    assert act(silent_quorum, 5) is None


def test_a_new_quorum_from_nothing_to_a_leader() -> None:
    fresh = p.Observed(ids=IDS, stale=("Service/x",))
    assert act(fresh) == p.ApplyObjects(("Service/x",))
    fresh = replace(fresh, stale=())
    assert act(fresh) == p.CreateStatefulSet(3)
    fresh = replace(fresh, size=3)
    assert refusals(fresh) == [p.Reason.WAITING_FOR_PODS]
    empty = (node(0, None), node(1, None), silent(2))
    fresh = replace(fresh, nodes=empty)
    assert act(fresh) == p.CreateRecord(None)
    fresh = replace(fresh, record=p.BootstrapRecord(CLUSTER))
    assert act(fresh) == p.FormatNode(0, "uid-0", CLUSTER, standalone=True)
    fresh = replace(fresh, nodes=(node(0), *empty[1:]))
    assert refusals(fresh) == [p.Reason.WAITING_FOR_LEADER]
    voters = frozenset({key(0)})
    fresh = replace(fresh, view=p.LeaderView(key(0), 1, voters, voters, voters))
    assert act(fresh) == p.MarkBootstrapped(CLUSTER)
    fresh = replace(fresh, is_marked=True)
    assert act(fresh) == p.FormatNode(1, "uid-1", CLUSTER)


def test_a_wiped_seed_does_not_begin_again() -> None:
    """Its disk is gone, and others have theirs: it joins like anybody."""
    wiped = quorum(node(0, None), node(1), node(2), leader=1)
    assert act(wiped) == p.RemoveVoter(key(0))
    unmarked = replace(without_leader(wiped), is_marked=False, known_voters=frozenset())
    assert refusals(unmarked) == [p.Reason.BOOTSTRAP_RECORD_LOST]


def test_disks_of_an_earlier_quorum_are_taken_over() -> None:
    found = p.Observed(
        ids=IDS, size=3, nodes=(node(0), node(1), silent(2)), inherited=frozenset({0, 1, 2})
    )
    assert refusals(found) == [p.Reason.WAITING_FOR_PODS]  # disk 2 may be of another cluster
    found = replace(found, nodes=(node(0), node(1), node(2)))
    assert act(found) == p.CreateRecord(CLUSTER, adopted=True)
    assert act(found, cluster_id=CLUSTER) == p.CreateRecord(CLUSTER, adopted=True)
    assert refusals(found, cluster_id=OTHER) == [p.Reason.CLUSTER_ID_MISMATCH]
    mixed = replace(found, nodes=(node(0), node(1, cluster_id=OTHER), node(2)))
    assert refusals(mixed) == [p.Reason.CLUSTER_ID_MISMATCH]
    adopted = replace(found, record=p.BootstrapRecord(CLUSTER, adopted=True))
    assert refusals(adopted) == [p.Reason.WAITING_FOR_LEADER]


def test_an_adopted_quorum_never_formats_standalone() -> None:
    adopted = p.Observed(
        ids=IDS,
        size=3,
        nodes=(node(0, None), node(1, None), node(2, None)),
        record=p.BootstrapRecord(CLUSTER, adopted=True),
    )
    assert act(adopted) is None


def test_a_cluster_that_was_here_is_not_begun_again() -> None:
    lost = p.Observed(
        ids=IDS, size=1, nodes=(node(0, None),), known_cluster_id=CLUSTER, known_voters=frozenset()
    )
    assert refusals(lost, 1) == [p.Reason.BOOTSTRAP_RECORD_LOST]


def test_a_cluster_begins_with_the_id_that_was_asked_for() -> None:
    fresh = p.Observed(ids=IDS, size=1, nodes=(node(0, None),))
    assert act(fresh, 1, cluster_id=CLUSTER) == p.CreateRecord(CLUSTER)
    assert refusals(HEALTHY, cluster_id=OTHER) == [p.Reason.CLUSTER_ID_MISMATCH]
    assert act(HEALTHY, cluster_id=CLUSTER) is None


def test_controllers_that_find_another_cluster_in_zookeeper_are_left_alone() -> None:
    """Nothing is begun, added or removed with them; what was corrected is in the pods' template."""
    ended = silent(1, wrong_ensemble="zookeeper.connect=zk: /cluster/id contains x")
    found = quorum(node(0), ended, node(2, None))
    said = p.plan(p.Desired(5), found)
    assert said.refuses(p.Reason.WRONG_ENSEMBLE)
    wanted = f"node {IDS.of(1)}: zookeeper.connect=zk: /cluster/id contains x"
    assert said.refusals[0].text == wanted
    assert said.action is None
    begun = replace(found, is_marked=False, view=None)
    assert refusals(begun) == [p.Reason.WRONG_ENSEMBLE]
    corrected = replace(found, nodes=(node(0), replace(ended, outdated=True), node(2, None)))
    assert act(corrected) == p.RestartPod(1, "uid-1")
    assert act(replace(found, stale=("StatefulSet/q",))) == p.ApplyObjects(("StatefulSet/q",))


def test_people_are_told_node_ids() -> None:
    """As the quorum itself has them."""
    said = p.plan(p.Desired(3), quorum(node(0), node(1), silent(2)))
    assert said.refusals[0].text.startswith(f"node {IDS.of(2)}: ")
    said = p.plan(p.Desired(3), quorum(node(0), node(1), node(2, None), voters=2))
    assert said.text == f"format node {IDS.of(2)} to join"


def test_a_disk_of_another_cluster_stops_everything() -> None:
    foreign = quorum(node(0), node(1), node(2, cluster_id=OTHER))
    assert refusals(foreign, 5) == [p.Reason.CLUSTER_ID_MISMATCH]


def test_a_lost_disk_is_replaced() -> None:
    lost = quorum(node(0), node(1), node(2, None))
    assert act(lost) == p.RemoveVoter(key(2))
    removed = quorum(node(0), node(1), node(2, None), voters=2)
    assert act(removed) == p.FormatNode(2, "uid-2", CLUSTER)
    joined = quorum(node(0), node(1), node(2, "b"), voters=2)
    assert act(joined) == p.AddVoter(key(2, "b"))


def test_a_lost_disk_waits_where_somebody_wants_to_replace_it_by_hand() -> None:
    lost = quorum(node(0), node(1), node(2, None))
    assert refusals(lost, replace_disks=False)[0] is p.Reason.DISK_REPLACEMENT_MANUAL
    assert act(lost, replace_disks=False) is None


def test_an_observer_that_is_behind_is_no_voter_yet() -> None:
    behind = quorum(node(0), node(1), node(2, "b"), voters=2)
    assert behind.view is not None
    caught_up = behind.view.caught_up - {key(2, "b")}
    behind = replace(behind, view=replace(behind.view, caught_up=caught_up))
    assert refusals(behind) == [p.Reason.CATCHING_UP]


@pytest.mark.parametrize("leader", [None, 2])
def test_two_of_three_disks_lost_change_nothing(leader: int | None) -> None:
    lost = quorum(node(0, None), node(1, None, outdated=True), node(2), leader=2)
    lost = lost if leader is not None else without_leader(lost)
    lost = replace(lost, stale=("Service/x",))
    assert refusals(lost, 5) == [p.Reason.MAJORITY_DISKS_LOST]


@pytest.mark.parametrize("voters", [3, 4])
def test_a_refusal_counts_the_disks_that_remain(voters: int) -> None:
    """Half of an even voter set is no majority, whichever half is lost."""
    lost = quorum(
        node(0, None), node(1, None), *(node(n) for n in range(2, voters)), voters=voters, leader=2
    )
    (refusal,) = p.plan(p.Desired(voters), lost).refusals
    assert refusal.reason is p.Reason.MAJORITY_DISKS_LOST
    left, needed = voters - 2, voters // 2 + 1
    assert f"at most {left} of {voters} voters' disks remain, {needed} are needed" in refusal.text


def test_a_silent_node_has_lost_nothing() -> None:
    """What does not answer is not provably gone."""
    quiet = without_leader(quorum(silent(0), silent(1), node(2)))
    assert refusals(quiet) == [p.Reason.WAITING_FOR_LEADER]
    assert refusals(quorum(node(0), node(1), silent(2))) == [p.Reason.WAITING_FOR_PODS]


def test_an_uncommitted_change_is_waited_for() -> None:
    assert HEALTHY.view is not None
    more = HEALTHY.view.voters | {key(3)}
    changing = replace(HEALTHY, view=replace(HEALTHY.view, voters=more))
    assert refusals(changing) == [p.Reason.CHANGE_UNCOMMITTED]


def test_scaling_up_creates_then_formats_then_adds() -> None:
    assert act(HEALTHY, 5) == p.Resize(4, 3)
    nodes = (*HEALTHY.nodes, node(3, None), node(4, None))
    assert act(quorum(*nodes), 5) == p.FormatNode(3, "uid-3", CLUSTER)
    nodes = (*HEALTHY.nodes, node(3), node(4, None))
    assert act(quorum(*nodes), 5) == p.FormatNode(4, "uid-4", CLUSTER)
    nodes = (*HEALTHY.nodes, node(3), node(4))
    assert act(quorum(*nodes), 5) == p.AddVoter(key(3))
    assert act(quorum(*nodes, voters=4), 5) == p.AddVoter(key(4))
    assert p.plan(p.Desired(5), quorum(*nodes, voters=5)).is_done


def test_scaling_down_removes_the_leader_last_and_then_shrinks() -> None:
    nodes = tuple(node(ordinal) for ordinal in range(5))
    assert act(quorum(*nodes, voters=5, leader=4)) == p.RemoveVoter(key(3))
    four = quorum(*nodes, voters=5, leader=4)
    assert four.view is not None
    left = four.view.voters - {key(3)}
    four = replace(four, view=replace(four.view, voters=left, committed=left))
    assert act(four) == p.TransferLeadership(key(0))
    assert four.view is not None
    four = replace(four, view=replace(four.view, leader=key(0)))
    assert act(four) == p.RemoveVoter(key(4))
    assert act(quorum(*nodes, voters=3)) == p.Resize(3, 5)


def test_scaling_down_waits_for_the_nodes_that_remain() -> None:
    nodes = (node(0), silent(1), node(2), node(3), node(4))
    blocked = quorum(*nodes, voters=5)
    assert act(blocked) is None
    assert p.Reason.SCALE_DOWN_BLOCKED in refusals(blocked)


def test_a_dead_surplus_voter_goes_first() -> None:
    nodes = (node(0), node(1), node(2), silent(3), node(4))
    assert act(quorum(*nodes, voters=5)) == p.RemoveVoter(key(3))


def test_a_rollout_goes_from_the_last_to_the_leader() -> None:
    outdated = [node(ordinal, outdated=True) for ordinal in range(3)]
    assert act(quorum(*outdated, leader=2)) == p.RestartPod(1, "uid-1")
    rest = quorum(node(0), node(1), outdated[2], leader=2)
    assert act(rest) == p.TransferLeadership(key(0))
    rest = quorum(node(0), node(1), outdated[2], leader=0)
    assert act(rest) == p.RestartPod(2, "uid-2")


def test_a_rollout_waits_for_a_node_that_is_not_back() -> None:
    assert refusals(quorum(node(0, outdated=True), node(1), silent(2)))[0] is (
        p.Reason.ROLLOUT_BLOCKED
    )


def test_a_pod_that_cannot_start_gets_its_new_template() -> None:
    """Without a leader, too: otherwise a broken image would stay for ever."""
    stuck = quorum(silent(0, outdated=True), silent(1, outdated=True), silent(2, outdated=True))
    assert act(without_leader(stuck)) == p.RestartPod(0, "uid-0")
    ready = quorum(silent(0, outdated=True, ready=True), node(1), node(2))
    assert act(without_leader(ready)) is None


def test_a_voter_that_is_no_pod_is_left_alone() -> None:
    assert HEALTHY.view is not None
    for number in (0, 2, IDS.first - 1, IDS.first + NODES_MAX):
        more = HEALTHY.view.voters | {ReplicaKey(number, "x")}
        foreign = replace(HEALTHY, view=replace(HEALTHY.view, voters=more, committed=more))
        assert refusals(foreign) == [p.Reason.FOREIGN_VOTER]
        assert p.size_for(p.Desired(3), foreign) == 3


# --- what holds for every plan --------------------------------------------------------------------

ORDINALS = range(5)


@st.composite
def observations(draw: st.DrawFn) -> tuple[p.Desired, p.Observed]:
    """Anything that could be seen, likely or not."""
    size = draw(st.integers(0, 5))
    nodes = tuple(
        draw(
            st.builds(
                node,
                st.just(ordinal),
                st.sampled_from(["a", "a", "a", "b", None]),
                answers=st.booleans(),
                ready=st.booleans(),
                outdated=st.booleans(),
                terminating=st.booleans(),
                is_fenced=st.sampled_from([False, False, False, False, True]),
                loses_volume=st.sampled_from([False, False, False, True]),
            )
        )
        for ordinal in range(size)
    )
    keys = st.frozensets(
        st.builds(key, st.sampled_from(ORDINALS), st.sampled_from("aab")), min_size=1, max_size=5
    ).filter(lambda found: len({each.id for each in found}) == len(found))
    voters = draw(keys)
    members = st.one_of(
        st.just(frozenset[int]()), st.frozensets(st.sampled_from(ORDINALS), max_size=2)
    )
    view = None
    if draw(st.booleans()):
        committed = voters if draw(st.integers(0, 3)) else draw(keys)
        caught_up = draw(st.frozensets(st.sampled_from([n.key for n in nodes] or [key(0)])))
        leader = draw(st.sampled_from(sorted(voters)))
        view = p.LeaderView(leader, 1, voters, committed, caught_up | {leader})
    observed = p.Observed(
        ids=IDS,
        size=draw(st.sampled_from([size, size, None])),
        nodes=nodes,
        view=view,
        known_voters=voters if draw(st.booleans()) else frozenset(),
        record=draw(
            st.sampled_from(
                [None, p.BootstrapRecord(CLUSTER), p.BootstrapRecord(CLUSTER, adopted=True)]
            )
        ),
        is_marked=draw(st.booleans()),
        known_cluster_id=draw(st.sampled_from(["", CLUSTER])),
        volumes=draw(st.frozensets(st.sampled_from(ORDINALS))),
        fenced=draw(members),
        made_class=draw(st.sampled_from(["", "", "slow"])),
    )
    desired = p.Desired(
        draw(st.integers(1, 5)),
        paused=draw(st.integers(0, 9)) == 0,
        replace_disks=draw(st.booleans()),
        fenced=draw(members),
    )
    return desired, observed


@pytest.mark.slow
@settings(max_examples=600)
@given(observations())
def test_no_plan_breaks_the_rules(seen: tuple[p.Desired, p.Observed]) -> None:
    desired, observed = seen
    planned = p.plan(desired, observed)
    action = planned.action
    assert planned == p.plan(desired, observed)
    assert action is None or planned.text
    if action is None:
        return
    assert not desired.paused
    assert not p.is_majority_gone(observed)
    view = observed.view
    living = p.alive(observed)
    match action:
        case p.RemoveVoter(voter):
            assert view is not None
            assert view.voters == view.committed
            assert voter in view.voters
            assert voter != view.leader
            assert p.is_safe(living, view.voters - {voter})
            assert IDS.ordinal(voter.id) not in observed.fenced
        case p.AddVoter(voter):
            assert view is not None
            assert IDS.ordinal(voter.id) in range(desired.replicas)
            assert voter.id not in {each.id for each in view.voters}
            assert voter in view.caught_up
            assert p.is_safe(living | {voter}, view.voters | {voter})
        case p.TransferLeadership(target):
            assert view is not None
            assert target in living
            assert target != view.leader
        case p.FormatNode(ordinal, uid, cluster_id, standalone):
            found = observed.node(ordinal)
            assert found is not None
            assert found.is_empty
            assert found.uid == uid
            assert cluster_id == CLUSTER
            if standalone:
                assert ordinal == p.SEED
                assert not observed.is_bootstrapped
                assert not any(each.is_formatted for each in observed.nodes)
            else:
                assert view is not None
                assert IDS.of(ordinal) not in {voter.id for voter in view.voters}
                assert not found.loses_volume
        case p.Resize(replicas, before):
            assert before == observed.size
            if replicas > before and view is not None and observed.is_bootstrapped:
                dead = [IDS.ordinal(voter.id) for voter in view.voters - living]
                assert replicas == before + 1 or replicas - 1 in dead
            else:
                assert replicas >= desired.replicas
            if replicas < before:
                assert view is not None
                assert view.voters == view.committed
                assert all(voter.id < IDS.of(replicas) for voter in view.voters)
                assert all(ordinal < replicas for ordinal in observed.fenced)
        case p.SetFenced(ordinals):
            if added := {*ordinals} - observed.fenced:
                assert view is not None
                assert added <= desired.fenced
                running = [n.id for n in observed.nodes if n.is_fenced and n.ordinal not in added]
                stopped = {IDS.of(ordinal) for ordinal in ordinals} - {*running}
                if any(IDS.ordinal(voter.id) in added for voter in view.voters):
                    rest = {voter for voter in living if voter.id not in stopped}
                    assert p.is_safe(rest, view.voters)
        case p.RestartPod(ordinal, _):
            found = observed.node(ordinal)
            assert found is not None
            if found.loses_volume:
                assert view is not None
                assert IDS.of(ordinal) not in {voter.id for voter in view.voters | view.committed}
                return
            if found.is_fenced:
                assert ordinal not in desired.fenced | observed.fenced
                return
            assert found.outdated or ordinal in desired.fenced & observed.fenced
            is_dead = not found.ready and not found.answers
            if not is_dead:
                assert view is not None
                if found.key in view.voters and len(view.voters) > 2:
                    assert p.is_safe(living - {found.key}, view.voters)
        case p.CreateRecord():
            assert observed.record is None
        case p.MarkBootstrapped():
            assert view is not None
