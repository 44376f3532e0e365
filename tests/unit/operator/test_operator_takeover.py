"""The takeover of Kafka's controllers: the plan, explored in a small world, and what it refuses."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from quorate.controller.config_reader import load_config
from quorate.raft.types import ReplicaKey
from quorate.rpc.wire.limits import format_address, parse_address
from quorate_operator import pod
from quorate_operator.crd import takeover_schema
from quorate_operator.naming import NodeIds
from quorate_operator.objects import manifests
from quorate_operator.objects.resource import QuorumResource
from quorate_operator.planning import plan as p
from quorate_operator.planning.takeover import TakeoverPhase, phase

CLUSTER = "yFPgY5iXQYqr5sMxfdxu0Q"
SPEC: dict[str, Any] = {
    "image": "quorate:test",
    "clusterId": CLUSTER,
    "firstNodeId": 3100,
    "tls": {"enabled": False},
    "kafkaListener": {"enabled": True, "name": "CONTROLLER"},
    "takeover": {
        "controllers": [
            {"id": 3000, "address": "c0.kafka:9093"},
            {"id": 3001, "address": "c1.kafka:9093"},
        ]
    },
}
IDS = NodeIds(3100)
KAFKAS = (3000, 3001, 3002)


class Node(NamedTuple):
    """A pod's node, or a controller of Kafka, which is always formatted."""

    up: bool = True
    formatted: bool = True
    synced: bool = True
    is_gone: bool = False
    """Whether it never comes back."""


class World(NamedTuple):
    """nodes: by node id, pods first. faults, changes: how many may follow, of the machines and of
    the spec.
    """

    nodes: tuple[tuple[int, Node], ...]
    voters: frozenset[int]
    leader: int | None
    rolls_back: bool = False
    faults: int = 0
    changes: int = 0

    @property
    def node(self) -> dict[int, Node]:
        return dict(self.nodes)

    @property
    def kafkas(self) -> frozenset[int]:
        return frozenset(self.node).intersection(KAFKAS)

    @property
    def pods(self) -> frozenset[int]:
        return frozenset(self.node).difference(KAFKAS)

    def is_alive(self, node_id: int) -> bool:
        return self.node[node_id].up and self.node[node_id].formatted

    @property
    def can_commit(self) -> bool:
        return sum(map(self.is_alive, self.voters)) >= len(self.voters) // 2 + 1

    @property
    def can_recover(self) -> bool:
        left = sum(not self.node[voter].is_gone for voter in self.voters)
        return left >= len(self.voters) // 2 + 1

    @property
    def is_as_wanted(self) -> bool:
        return self.voters == (self.kafkas if self.rolls_back else self.pods)

    def with_node(self, node_id: int, node: Node) -> World:
        changed = tuple((n, node if n == node_id else each) for n, each in self.nodes)
        made = self._replace(nodes=changed)
        return made.settled()

    def settled(self) -> World:
        """A leader that is down, or that a majority does not follow, leads no more."""
        if self.leader is not None and not (self.is_alive(self.leader) and self.can_commit):
            return self._replace(leader=None)
        return self


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, f"directory-{node_id}")


def world(pods: int, kafkas: int = 3, **more: object) -> World:
    """Kafka's controllers, which are the voters, and empty pods."""
    empty = Node(formatted=False, synced=False)
    nodes = [(IDS.of(n), empty) for n in range(pods)]
    nodes += [(node_id, Node()) for node_id in KAFKAS[:kafkas]]
    made = World(tuple(nodes), frozenset(KAFKAS[:kafkas]), KAFKAS[0])
    return made._replace(**more)


def desired(found: World) -> p.Desired:
    return p.Desired(
        len(found.pods), cluster_id=CLUSTER, is_takeover=True, rolls_back=found.rolls_back
    )


def observe(found: World) -> p.Observed:
    pods = [(n, node) for n, node in found.nodes if n in found.pods]
    nodes = tuple(
        p.ObservedNode(
            node_id - IDS.first,
            node_id,
            uid=f"uid-{node_id}",
            answers=node.up,
            directory_id=key(node_id).directory_id if node.up and node.formatted else None,
            cluster_id=CLUSTER if node.up and node.formatted else "",
            ready=node.up and node.synced,
        )
        for node_id, node in pods
    )
    voters = frozenset(map(key, found.voters))
    view = None
    # Without a pod that fetches, nobody tells the operator who leads.
    if found.leader is not None and any(node.up and node.formatted for _, node in pods):
        caught_up = frozenset(key(n) for n, node in found.nodes if node.up and node.synced)
        view = p.LeaderView(key(found.leader), 1, voters, voters, caught_up)
    return p.Observed(
        ids=IDS,
        kafka_ids=found.kafkas,
        size=len(nodes),
        nodes=nodes,
        view=view,
        known_voters=voters,
        record=p.BootstrapRecord(CLUSTER, adopted=True),
        known_cluster_id=CLUSTER,
    )


def act(found: World, action: p.Action) -> World:
    match action:
        case p.FormatNode(ordinal, _, _, standalone):
            assert not standalone, "Kafka's cluster is never begun again"
            return found.with_node(IDS.of(ordinal), Node(synced=False))
        case p.AddVoter(voter):
            assert voter.id not in found.voters
            assert found.leader is not None
            return found._replace(voters=found.voters | {voter.id}).settled()
        case p.RemoveVoter(voter):
            assert found.leader is not None
            leader = None if voter.id == found.leader else found.leader
            return found._replace(voters=found.voters - {voter.id}, leader=leader).settled()
        case _:
            raise AssertionError(f"not in this world: {action}")


def events(found: World) -> Iterator[World]:
    """All that can happen next without the operator."""
    for node_id, node in found.nodes:
        if not node.up and not node.is_gone:
            yield found.with_node(node_id, node._replace(up=True, synced=False))
        elif node.formatted and not node.synced and found.leader is not None:
            yield found.with_node(node_id, node._replace(synced=True))
        if found.faults and node.up:
            failed = found._replace(faults=found.faults - 1)
            yield failed.with_node(node_id, node._replace(up=False))
            if found.rolls_back and not found.changes and node_id in found.pods:
                yield failed.with_node(node_id, node._replace(up=False, is_gone=True))
    if found.leader is None and found.can_commit:
        for node_id in sorted(found.voters):
            if found.is_alive(node_id):
                elected = found.with_node(node_id, found.node[node_id]._replace(synced=True))
                yield elected._replace(leader=node_id)
    if found.changes:
        yield found._replace(rolls_back=not found.rolls_back, changes=found.changes - 1)


def arrives(found: World) -> bool:
    """Whether the world becomes as wanted when nothing more goes wrong."""
    found = found._replace(faults=0, changes=0)
    for _ in range(200):
        calm = next(events(found), None)
        action = p.plan(desired(found), observe(found)).action
        if calm is None and action is None:
            return found.is_as_wanted
        found = act(found, action) if calm is None and action is not None else calm or found
    return False


@pytest.mark.parametrize(
    ("start", "states_min"),
    [
        (world(2, kafkas=2, faults=1, changes=1), 500),
        (world(1, faults=1, changes=2), 100),
        (world(3, kafkas=1, changes=2), 50),
    ],
)
def test_no_action_ever_stops_commits_and_the_takeover_always_ends(
    start: World, states_min: int
) -> None:
    seen, queue = {start}, deque([start])
    while queue:
        found = queue.popleft()
        action = p.plan(desired(found), observe(found)).action
        after = list(events(found))
        if action is not None:
            done = act(found, action)
            assert done.can_commit or not found.can_commit, (found, action)
            most = max(len(found.pods), len(found.kafkas)) + 1
            assert len(done.voters) <= max(most, len(found.voters)), (found, action)
            after.append(done)
        assert arrives(found) or not found.can_recover, found
        for each in after:
            if each not in seen:
                seen.add(each)
                queue.append(each)
    assert len(seen) > states_min


def run(found: World) -> tuple[World, list[p.Action]]:
    """Follow the plan to its end, without faults."""
    actions: list[p.Action] = []
    while True:
        calm = next(events(found), None)
        if calm is not None:
            found = calm
            continue
        action = p.plan(desired(found), observe(found)).action
        if action is None:
            return found, actions
        actions.append(action)
        found = act(found, action)


def changes(actions: list[p.Action]) -> list[int]:
    """The ids of the voters that were added, and, negative, of those that were removed."""
    found = []
    for action in actions:
        match action:
            case p.AddVoter(voter):
                found.append(voter.id)
            case p.RemoveVoter(voter):
                found.append(-voter.id)
    return found


def test_voters_are_replaced_one_at_a_time_there_and_back() -> None:
    end, actions = run(world(3))
    assert changes(actions) == [3100, -3001, 3101, -3002, 3102, -3000]
    assert phase(desired(end), observe(end)) is TakeoverPhase.COMPLETE
    assert p.plan(desired(end), observe(end)).is_done
    back, actions = run(end._replace(rolls_back=True))
    assert back.voters == frozenset(KAFKAS)
    assert [abs(each) >= IDS.first for each in changes(actions)] == [False, True] * 3
    plan = p.plan(desired(back), observe(back))
    assert plan.refuses(p.Reason.ROLLED_BACK)
    assert phase(desired(back), observe(back)) is TakeoverPhase.ROLLED_BACK


def with_voters(*voters: ReplicaKey, committed: tuple[ReplicaKey, ...] = ()) -> p.Observed:
    """Three pods that have joined, and a leader that reports these voters."""
    found = world(3)
    for node_id in found.pods:
        found = found.with_node(node_id, Node())
    observed = observe(found)
    assert observed.view is not None
    view = replace(
        observed.view,
        leader=voters[0],
        voters=frozenset(voters),
        committed=frozenset(committed or voters),
        caught_up=observed.view.caught_up | frozenset(voters),
    )
    return replace(observed, view=view)


def test_it_is_complete_only_when_the_pods_are_all_voters() -> None:
    wanted = desired(world(3))
    pods = tuple(map(key, sorted(world(3).pods)))
    assert phase(wanted, with_voters(*pods)) is TakeoverPhase.COMPLETE
    # The removal of the last one is not committed.
    late = with_voters(*pods, committed=(*pods, key(3000)))
    assert phase(wanted, late) is TakeoverPhase.TAKING_OVER
    # The spec names other controllers than those that are voters.
    others = tuple(ReplicaKey(number, f"directory-{number}") for number in (1, 2, 3))
    strangers = with_voters(*others)
    assert phase(wanted, strangers) is TakeoverPhase.JOINING
    assert p.plan(wanted, strangers).refuses(p.Reason.TAKEOVER_BLOCKED)
    removed = with_voters(others[0], *pods)
    assert phase(wanted, removed) is TakeoverPhase.TAKING_OVER
    planned = p.plan(wanted, removed)
    assert planned.action is None
    assert planned.refuses(p.Reason.TAKEOVER_BLOCKED)


@pytest.mark.parametrize(
    ("voters", "dead", "steps"),
    [
        ((3100, 3101, 3102), 3102, [3000, -3102, 3001, -3101, 3002, -3100]),
        ((3000, 3001, 3002, 3102), 3102, [-3102]),
        ((3000, 3001, 3100), 3100, [3002, -3100]),
    ],
)
def test_a_pod_that_never_comes_back_does_not_hold_up_a_rollback(
    voters: tuple[int, ...], dead: int, steps: list[int]
) -> None:
    begun = world(3, voters=frozenset(voters), leader=voters[0], rolls_back=True)
    for node_id in begun.pods:
        begun = begun.with_node(node_id, Node())
    begun = begun.with_node(dead, Node(up=False, is_gone=True))
    end, actions = run(begun)
    assert end.voters == frozenset(KAFKAS)
    assert changes(actions) == steps


def test_a_pod_that_lost_its_disk_joins_again_although_no_pod_knows_the_leader() -> None:
    alone = world(1)._replace(voters=frozenset({*KAFKAS, 3100}))
    assert observe(alone).view is None
    end, _ = run(alone)
    assert end.is_as_wanted


def test_an_operator_that_knows_of_no_takeover_begins_no_quorum() -> None:
    """An older version, or one whose CRD has dropped the field."""
    begun = replace(observe(world(3)), record=None)
    planned = p.plan(replace(desired(world(3)), is_takeover=True), begun)
    assert planned.action == p.CreateRecord(CLUSTER, adopted=True)
    ignorant = p.Desired(3, cluster_id=CLUSTER)
    assert p.plan(ignorant, observe(world(3))).action is None
    # Its record is no reason for one that knows better.
    found = replace(observe(world(3)), record=p.BootstrapRecord(CLUSTER))
    assert p.plan(desired(world(3)), found).action == p.FormatNode(0, "uid-3100", CLUSTER)


def test_a_fenced_pod_hands_leadership_to_another_pod() -> None:
    wanted = replace(desired(world(3)), fenced=frozenset({0}))
    observed = with_voters(*map(key, (3100, 3101, 3102, 3002)))
    assert p.plan(wanted, observed).action == p.TransferLeadership(key(3101))


def test_a_dead_voter_stops_it_until_all_others_are_replaced() -> None:
    begun = world(3)
    for node_id in (3100, 3101, 3102):
        begun = begun.with_node(node_id, Node())
    down = begun.with_node(3001, Node(up=False))
    plan = p.plan(desired(down), observe(down))
    assert plan.action is None
    assert plan.refuses(p.Reason.TAKEOVER_BLOCKED)
    mixed = begun._replace(voters=frozenset({3100, 3101, 3102, 3000, 3001}))
    down = mixed.with_node(3001, Node(up=False))
    assert p.plan(desired(down), observe(down)).action == p.RemoveVoter(key(3001))


def test_a_voter_that_nobody_named_stops_it() -> None:
    begun = observe(world(3).with_node(3100, Node()))
    assert begun.view is not None
    strange = frozenset({*begun.view.voters, ReplicaKey(77, "strange")})
    view = replace(begun.view, voters=strange, committed=strange, caught_up=strange)
    plan = p.plan(desired(world(3)), replace(begun, view=view))
    assert plan.action == p.FormatNode(1, "uid-3101", CLUSTER)
    plan = p.plan(desired(world(1)), replace(begun, view=view, nodes=begun.nodes[:1], size=1))
    assert plan.action is None
    assert plan.refuses(p.Reason.TAKEOVER_BLOCKED)


def test_a_controller_of_kafka_that_does_not_run_is_not_given_the_quorum() -> None:
    end, _ = run(world(3))
    for node_id in KAFKAS:
        end = end.with_node(node_id, Node(up=False, synced=False))
    back = end._replace(rolls_back=True)
    plan = p.plan(desired(back), observe(back))
    assert plan.action is None
    assert plan.refuses(p.Reason.CATCHING_UP)
    assert "Kafka's controller 3000" in plan.refusals[0].text


def test_a_disk_that_is_lost_on_the_way_is_replaced() -> None:
    begun = world(3).with_node(3100, Node())
    voters = begun.voters | {3100}
    lost = begun._replace(voters=voters).with_node(3100, Node(formatted=False, synced=False))
    lost = lost.with_node(3101, Node())
    assert p.plan(desired(lost), observe(lost)).action == p.RemoveVoter(key(3100))
    end, _ = run(lost)
    assert end.is_as_wanted


# --- the resource ---------------------------------------------------------------------------------


def test_a_pod_talks_to_kafkas_controllers_in_their_protocol() -> None:
    made = manifests.environment(QuorumResource("meta", "lab", spec=SPEC))
    environment = {each["name"]: each["value"] for each in made if "value" in each}
    environment |= {"QUORATE_POD_NAME": "meta-1", "QUORATE_POD_NAMESPACE": "lab"}
    config = load_config(None, pod.settings(environment))
    assert config.node_id == 3101
    assert list(map(str, config.endpoints)) == [
        "RAFT://meta-1.lab.svc:9093",
        "CONTROLLER://meta-1.lab.svc:9094",
    ]
    assert config.kafka.peer_protocol == "kafka"
    assert config.kafka.name == "CONTROLLER"
    servers = [format_address(*each) for each in config.bootstrap_servers]
    assert servers[:3] == ["c0.kafka:9093", "c1.kafka:9093", "meta-0.lab.svc:9094"]
    assert not config.warnings, config.warnings
    # After the takeover, the listeners keep their names.
    spec = {name: value for name, value in SPEC.items() if name != "takeover"}
    made = manifests.environment(QuorumResource("meta", "lab", spec=spec))
    environment = {each["name"]: each["value"] for each in made if "value" in each}
    environment |= {"QUORATE_POD_NAME": "meta-1", "QUORATE_POD_NAMESPACE": "lab"}
    later = load_config(None, pod.settings(environment))
    assert later.endpoints == config.endpoints
    assert later.kafka.peer_protocol == "grpc"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ""),
        ({"clusterId": ""}, "needs clusterId"),
        ({"firstNodeId": 0}, "needs clusterId and firstNodeId"),
        ({"firstNodeId": 2999}, "has id 3000, which is that of a pod"),
        ({"kafkaListener": {"enabled": True}}, "kafkaListener.name"),
        ({"kafkaListener": {"name": "CONTROLLER"}}, "kafkaListener.enabled"),
        ({"hibernated": True}, "cannot hibernate"),
        ({"tls": {}}, "SSL, or tls.enabled false"),
        ({"tls": {}, "kafkaListener": {**SPEC["kafkaListener"], "protocol": "SSL"}}, ""),
        ({"migration": {"zookeeperConnect": "zk"}}, "neither with a backup nor with a migration"),
    ],
)
def test_an_older_definition_may_have_accepted_it(change: dict[str, Any], said: str) -> None:
    found = QuorumResource("meta", "lab", spec=SPEC | change).desired.invalid
    assert bool(found) == bool(said)
    assert said in found


@pytest.mark.parametrize(
    ("address", "parsed"),
    [
        ("c0.kafka:9093", ("c0.kafka", 9093)),
        ("10.0.0.1:65535", ("10.0.0.1", 65535)),
        ("[fd00::1]:1", ("fd00::1", 1)),
        ("c0", None),
        (":9093", None),
        ("c0:65536", None),
        ("c0:0", None),
        ("fd00::1:9093", None),
        ("c0:9093,c1:9093", None),
    ],
)
def test_the_api_server_accepts_only_addresses_that_can_be_parsed(
    address: str, parsed: tuple[str, int] | None
) -> None:
    assert bool(re.search(takeover_schema.ADDRESS, address)) == (parsed is not None)
    if parsed is not None:
        assert parse_address(address) == parsed


def test_kafkas_controllers_vote_with_certificates_of_the_operator() -> None:
    clients = [{"name": "c0", "brokerId": 3000}, {"name": "b1", "brokerId": 1}]
    listener = {**SPEC["kafkaListener"], "protocol": "SSL"}
    spec = SPEC | {"tls": {}, "kafkaListener": listener, "clients": clients}
    made = manifests.environment(QuorumResource("meta", "lab", spec=spec))
    found = {each["name"]: each.get("value", "") for each in made}
    principals = found["QUORATE_QUORATE_CONTROLLER_PRINCIPALS"].split(";")
    assert "User:CN=client-c0" in principals
    assert "User:CN=client-b1" not in principals
    # Voters are known by their ids, and by the hosts that are dialled.
    quorum = QuorumResource("meta", "lab", spec=spec)
    assert quorum.client_hosts("meta-client-c0-tls") == ("node-3000", "c0.kafka")
    assert quorum.client_hosts("meta-client-b1-tls") == ("node-1",)
    # Brokers could not be given their rights before they need them.
    assert "QUORATE_AUTHORIZER_CLASS_NAME" not in found
