"""The whole migration: three real controllers, a real ZooKeeper over a real cluster's data."""

from __future__ import annotations

import json
import re
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from quorate.metadata.metadata_version import LATEST_LEVEL
from quorate.migration import znodes as z
from quorate.migration.znodes import Tree
from quorate.records.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    ZkMigrationState,
)

from tests.integration.support import OTHER_CLUSTER, assert_error, free_ports, here, quorate, until
from tests.migration.cluster import IDS, STATE_S, MigratingQuorum, differences
from tests.migration.conftest import Server

TOPIC_ID = "AAAAAAAAAAAAAAAAAAB--w"


@pytest.fixture
def quorum(server: Server, tmp_path: Path) -> Iterator[MigratingQuorum]:
    made = MigratingQuorum(tmp_path, server.connect)
    yield made
    made.kill()


def steps(quorum: MigratingQuorum) -> Counter[str]:
    return Counter(type(record).__name__ for _, record in quorum.log())


def zookeeper(server: Server) -> Tree:
    client = server.client()
    try:
        return client.read_tree()
    finally:
        client.close()


def measured(ports: dict[int, int]) -> dict[str, float]:
    """What the one that leads tells of the migration; the others tell nothing of it."""
    told = []
    for port in ports.values():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            found = re.findall(
                r"^quorate_(zk\w+|metadatatype|migratingzkbrokercount)(?:{[^}]*})? (\S+)$",
                answer.read().decode(),
                re.MULTILINE,
            )
        told.append({name: float(value) for name, value in found})
    (leaders,) = (each for each in told if each)
    return leaders


def in_step(server: Server, quorum: MigratingQuorum) -> bool:
    return differences(zookeeper(server), quorum.image(), dual=True) == []


@pytest.mark.timeout(300)
def test_a_cluster_becomes_led_by_a_quorum(
    server: Server, znodes: Tree, quorum: MigratingQuorum
) -> None:
    ports = dict(zip(IDS, free_ports(len(IDS)), strict=True))
    for node in quorum.nodes.values():
        node.configure({"quorate.http.listener": f"127.0.0.1:{ports[node.id]}"})
    quorum.format_and_start()
    quorum.until_state(ZkMigrationState.PRE_MIGRATION)
    counted = measured(ports)
    assert (counted["zkmigrationstate"], counted["metadatatype"]) == (2, 1)
    refused = here("topics", "--bootstrap-controller", quorum.addresses, "list", "--timeout", "2")
    assert refused.status == 1, "nothing is answered before the copy"
    quorum.register_brokers()
    image = quorum.until_state(ZkMigrationState.MIGRATION)
    copied = quorum.copied()
    assert differences(znodes, copied) == [], "field by field, with the partitions' epochs"
    counts = steps(quorum)
    assert (
        counts[BeginTransactionRecord.__name__],
        counts[EndTransactionRecord.__name__],
        counts[AbortTransactionRecord.__name__],
    ) == (1, 1, 0), "one transaction"
    quorum.until_said("DUAL_WRITE")
    counted = measured(ports)
    assert (counted["zkmigrationstate"], counted["metadatatype"]) == (1, 3)
    assert counted["migratingzkbrokercount"] == 2
    assert counted["zkwritesnapshottimems"] > 0
    tree = zookeeper(server)
    controller = tree[z.CONTROLLER].object()
    assert controller["brokerid"] in IDS
    assert tree[z.CONTROLLER].owner == 0
    assert int(tree[z.CONTROLLER_EPOCH].text()) > 1
    assert "/brokers/topics/placed" not in tree, "the pending deletion is completed"
    assert f"{z.DELETE_TOPICS}/placed" not in tree

    # What the log says from now on, ZooKeeper says too.
    quorum.append(
        TopicRecord("made", TOPIC_ID, version=0),
        PartitionRecord(
            partition_id=0, topic_id=TOPIC_ID, replicas=(1, 2), isr=(1, 2), leader=1,
            leader_epoch=0, partition_epoch=0, version=1,
        ),
        ConfigRecord(2, "made", "retention.ms", "77", version=0),
        ConfigRecord(4, "1", "num.io.threads", "9", version=0),
        RemoveTopicRecord(image.topics.ids["topic-07"], version=0),
    )  # fmt: skip
    until("both say the same", lambda: in_step(server, quorum))
    tree = zookeeper(server)
    assert tree["/brokers/topics/made/partitions/0/state"].object()["isr"] == [1, 2]
    assert tree["/config/brokers/1"].object()["config"] == {"num.io.threads": "9"}
    assert "/brokers/topics/topic-07" not in tree
    assert "/config/topics/topic-07" not in tree

    listed = here("topics", "--bootstrap-controller", quorum.addresses, "list")
    assert listed.status == 0, listed
    assert "made" in listed.out.split()
    told = here(
        "migrate", "status", "--zookeeper", server.connect, "--bootstrap-controller",
        quorum.addresses, "--json",
    )  # fmt: skip
    assert told.status == 0, told
    status = told.json()
    assert status["state"] == "MIGRATION"
    assert status["differences"] == []
    assert status["controllersReady"] == list(IDS)
    shown = here(
        "migrate", "status", "--zookeeper", server.connect, "--bootstrap-controller",
        quorum.addresses,
    )  # fmt: skip
    assert shown.status == 0, shown
    assert shown.out.startswith("state ")
    assert re.search(r"^differences +0$", shown.out, re.MULTILINE)
    early = here("migrate", "finalize", "--bootstrap-controller", quorum.addresses)
    assert_error(early, "zookeeper.metadata.migration.enable", "3001, 3002, 3003")


STEPS = [
    "WAIT_FOR_BROKERS",
    "BECOME_CONTROLLER",
    "claimed",
    "ZK_MIGRATION",
    "copy-begun",
    "copying",
    "SYNC_KRAFT_TO_ZK",
    "writing",
    "KRAFT_CONTROLLER_TO_BROKER_COMM",
    "DUAL_WRITE",
]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("step", STEPS)
def test_a_leader_that_dies_at_any_step_leaves_a_migration_that_completes(
    server: Server, znodes: Tree, quorum: MigratingQuorum, tmp_path: Path, step: str
) -> None:
    marker = tmp_path / "died"
    for node in quorum.nodes.values():
        node.die_at = f"{step}={marker}"
    quorum.format_and_start()
    quorum.until_state(ZkMigrationState.PRE_MIGRATION)
    quorum.register_brokers()
    until(f"a controller dies at {step}", marker.exists, 60)
    dead = until("it is dead", lambda: [n for n in quorum.nodes.values() if not n.is_alive])
    assert len(dead) == 1
    # A new leader waits for every voter: the dead one comes back.
    dead[0].start()
    quorum.until_state(ZkMigrationState.MIGRATION)
    assert differences(znodes, quorum.copied()) == []
    counts = steps(quorum)
    ended = counts["EndTransactionRecord"] + counts["AbortTransactionRecord"]
    assert counts["BeginTransactionRecord"] == ended
    assert counts["EndTransactionRecord"] == 1, "copied once, whoever began before"
    quorum.until_said("DUAL_WRITE")
    until("both say the same", lambda: in_step(server, quorum))
    until(
        "ZooKeeper belongs to who leads",
        lambda: (
            zookeeper(server)[z.CONTROLLER].object()["brokerid"]
            == (quorum.status() or {}).get("leaderId")
        ),
    )


@pytest.mark.timeout(240)
def test_it_ends_for_good_once_no_controller_has_the_setting(
    server: Server, quorum: MigratingQuorum
) -> None:
    quorum.format_and_start()
    quorum.until_state(ZkMigrationState.PRE_MIGRATION)
    quorum.register_brokers()
    quorum.until_state(ZkMigrationState.MIGRATION)
    quorum.until_said("DUAL_WRITE")
    for node in quorum.nodes.values():
        assert node.stop() == 0
        node.configure({"zookeeper.metadata.migration.enable": None, "zookeeper.connect": None})
        node.start()
    quorum.until_said("brokers 1, 2 are still in ZooKeeper mode")
    assert quorum.image().features.zk_migration == ZkMigrationState.MIGRATION
    early = here("migrate", "finalize", "--bootstrap-controller", quorum.addresses)
    assert_error(early, "brokers 1, 2 still run in ZooKeeper mode")
    quorum.register_brokers(in_zookeeper_mode=False)
    quorum.until_state(ZkMigrationState.POST_MIGRATION)
    done = here("migrate", "finalize", "--bootstrap-controller", quorum.addresses, "--json")
    assert done.status == 0, done
    assert done.json() == {"state": "POST_MIGRATION"}
    # Its features rise to what this release supports.
    raised = here("features", "--bootstrap-controller", quorum.addresses, "upgrade")
    assert raised.status == 0, raised
    print(raised.out)
    assert quorum.image().features.metadata_version == LATEST_LEVEL
    # The setting does not begin it again: it is complained of, and all goes on.
    node = quorum.nodes[IDS[0]]
    assert node.stop() == 0
    node.configure(
        {"zookeeper.metadata.migration.enable": "true", "zookeeper.connect": server.connect}
    )
    node.start()
    until(
        "it leads",
        lambda: here(
            "metadata-quorum", "--bootstrap-controller", quorum.addresses,
            "transfer-leadership", "-i", str(node.id),
        ).status == 0,
    )  # fmt: skip
    node.wait_said("has finished its migration")
    assert "zookeeper.metadata.migration.enable=true" in node.said()
    assert quorum.image().features.zk_migration == ZkMigrationState.POST_MIGRATION
    assert node.is_alive


@pytest.mark.timeout(240)
def test_it_can_be_rolled_back_before(
    server: Server, znodes: Tree, quorum: MigratingQuorum
) -> None:
    quorum.format_and_start()
    quorum.until_state(ZkMigrationState.PRE_MIGRATION)
    quorum.register_brokers()
    quorum.until_state(ZkMigrationState.MIGRATION)
    quorum.until_said("DUAL_WRITE")
    where = ("--zookeeper", server.connect, "--bootstrap-controller", quorum.addresses)
    assert_error(here("migrate", "rollback", *where), "stop all controllers")
    for node in quorum.nodes.values():
        node.stop()
    before = zookeeper(server)
    done = here("migrate", "rollback", *where, "--json")
    assert done.status == 0, done
    after = zookeeper(server)
    assert z.CONTROLLER not in after
    assert z.MIGRATION not in after
    assert {p: n.data for p, n in after.items() if p.startswith("/brokers/topics")} == {
        p: n.data for p, n in before.items() if p.startswith("/brokers/topics")
    }
    assert_error(here("migrate", "rollback", *where), "nothing to roll back")


def test_the_plan_says_what_there_is(server: Server) -> None:
    ran = here("migrate", "plan", "--zookeeper", server.connect, "--json")
    assert ran.status == 0, ran
    shown = here("migrate", "plan", "--zookeeper", server.connect)
    assert shown.status == 0, shown
    assert re.search(r"^Topic +\t29 +\t$", shown.out, re.MULTILINE)
    assert "Brokers that must take part: 1, 2" in shown.out
    plan = ran.json()
    assert plan["records"]["Topic"] == 29
    assert plan["records"]["UserScramCredential"] == 2
    assert plan["knownBrokers"] == [1, 2]
    assert plan["pendingDeletions"] == ["placed"]
    assert plan["problems"] == []
    assert any("brokers 2 are not running" in text or "brokers 1, 2 are not" in text
               for text in plan["warnings"])  # fmt: skip


def test_an_ensemble_that_does_not_answer_is_one_line() -> None:
    ran = quorate("migrate", "plan", "--zookeeper", "127.0.0.1:1")
    assert_error(ran, "zookeeper.connect=127.0.0.1:1", "no session")


def test_the_plan_names_what_is_wrong(empty: Server) -> None:
    client = empty.client()
    for path in ("/brokers", "/brokers/topics", "/config", "/config/clients"):
        client._client.create(path)
    client._client.create("/brokers/topics/old", b'{"partitions":{"0":[1]}}')
    client._client.create("/config/clients/c", b'{"config":{"producer_byte_rate":"fast"}}')
    client.close()
    ran = here("migrate", "plan", "--zookeeper", empty.connect, "--json")
    assert ran.status == 1
    problems = "\n".join(json.loads(ran.out)["problems"])
    for said in ("/brokers/topics/old: the topic has no id", "producer_byte_rate='fast'",
                 "/cluster/id"):  # fmt: skip
        assert said in problems


@pytest.mark.timeout(240)
def test_a_leader_that_was_paused_writes_nothing_when_it_wakes_up(
    server: Server, quorum: MigratingQuorum
) -> None:
    quorum.format_and_start()
    quorum.until_state(ZkMigrationState.PRE_MIGRATION)
    quorum.register_brokers()
    quorum.until_state(ZkMigrationState.MIGRATION)
    quorum.until_said("DUAL_WRITE")
    old_id = zookeeper(server)[z.CONTROLLER].object()["brokerid"]
    old = quorum.nodes[old_id]
    old.pause()
    try:
        until(
            "another controller claims ZooKeeper",
            lambda: zookeeper(server)[z.CONTROLLER].object()["brokerid"] != old_id,
            STATE_S,
        )
        quorum.append(ConfigRecord(4, "1", "num.io.threads", "11", version=0))
        until("both say the same", lambda: in_step(server, quorum))
        since = len(old.said())
    finally:
        old.resume()
    until("the old leader knows", lambda: "INACTIVE" in old.said()[since:])
    quorum.append(ConfigRecord(4, "1", "num.io.threads", "12", version=0))
    until("both say the same", lambda: in_step(server, quorum))
    position = zookeeper(server)[z.MIGRATION].object()
    assert position["kraft_controller_id"] != old_id


@pytest.mark.timeout(240)
def test_a_leader_without_the_setting_resigns_while_others_have_it(
    server: Server, quorum: MigratingQuorum
) -> None:
    quorum.format_and_start()
    quorum.until_state(ZkMigrationState.PRE_MIGRATION)
    quorum.register_brokers()
    quorum.until_state(ZkMigrationState.MIGRATION)
    quorum.until_said("DUAL_WRITE")
    odd = quorum.nodes[IDS[0]]
    assert odd.stop() == 0
    odd.configure({"zookeeper.metadata.migration.enable": None, "zookeeper.connect": None})
    odd.start()
    quorum.until("it is back", lambda s: s["leaderId"] not in (-1, None))
    until(
        "it leads, and says why it does not want to",
        lambda: here(
            "metadata-quorum", "--bootstrap-controller", quorum.addresses,
            "transfer-leadership", "-i", str(odd.id),
        ).status == 0 and "is not true here" in odd.said(),
        STATE_S,
    )  # fmt: skip
    assert "zookeeper.metadata.migration.enable is not true here" in odd.said()
    quorum.until("another leads", lambda s: s["leaderId"] not in (-1, None, odd.id))
    assert quorum.image().features.zk_migration == ZkMigrationState.MIGRATION


@pytest.mark.timeout(240)
def test_a_cluster_with_metadata_of_its_own_is_left_alone(
    server: Server, quorum: MigratingQuorum
) -> None:
    for node in quorum.nodes.values():
        node.alone = True
    quorum.format_and_start()
    quorum.append(FeatureLevelRecord("metadata.version", 21, version=0))
    quorum.append(ConfigRecord(4, "", "num.io.threads", "3", version=0))
    for node in quorum.nodes.values():
        assert node.stop() == 0
        node.alone = False
        node.start()
    quorum.until_said("was never in ZooKeeper: it has metadata of its own")
    assert "zookeeper.metadata.migration.enable=true" in quorum.said()
    assert quorum.image().features.zk_migration == ZkMigrationState.NONE
    assert z.MIGRATION not in zookeeper(server)


def without_position(tree: Tree) -> dict[str, tuple[bytes | None, int]]:
    """Every znode's data and version, but for /migration, which moves with the log."""
    return {path: (n.data, n.version) for path, n in tree.items() if path != z.MIGRATION}


@pytest.mark.timeout(240)
def test_what_a_paused_leader_was_about_to_write_is_refused_when_it_wakes_up(
    server: Server, tmp_path: Path
) -> None:
    """It stops between deciding on a write and sending it, and goes on once another has claimed
    ZooKeeper and written all of that: before it can hear of it.
    """
    marker = tmp_path / "stopped"
    # Its session is not to expire meanwhile: what refuses the write is the claim alone.
    quorum = MigratingQuorum(tmp_path, server.connect, **{"zookeeper.session.timeout.ms": "60000"})
    for node in quorum.nodes.values():
        node.stop_at = f"writing={marker}"
    try:
        quorum.format_and_start()
        quorum.until_state(ZkMigrationState.PRE_MIGRATION)
        quorum.register_brokers()
        until("a leader stops before its first write", marker.exists, STATE_S)
        old_id = zookeeper(server)[z.CONTROLLER].object()["brokerid"]
        old = quorum.nodes[old_id]
        until(
            "another controller claims ZooKeeper and writes",
            lambda: (
                zookeeper(server)[z.CONTROLLER].object()["brokerid"] != old_id
                and in_step(server, quorum)
            ),
            STATE_S,
        )
        before, since = zookeeper(server), len(old.said())
        old.resume()
        until(
            "its write is refused",
            lambda: "another controller has claimed ZooKeeper since" in old.said()[since:],
        )
        after = zookeeper(server)
        assert without_position(after) == without_position(before)
        position = after[z.MIGRATION].object()
        assert position["kraft_controller_id"] != old_id
        quorum.append(ConfigRecord(4, "1", "num.io.threads", "12", version=0))
        until("both say the same", lambda: in_step(server, quorum))
    finally:
        for node in quorum.nodes.values():
            if node.is_alive:
                node.resume()
        quorum.kill()


@pytest.mark.timeout(120)
def test_an_ensemble_of_another_cluster_ends_the_controllers_at_their_start(
    server: Server, quorum: MigratingQuorum
) -> None:
    """Who knows the log ends; who cannot, since the others have ended, says why it waits."""
    quorum.format_and_start(OTHER_CLUSTER)
    wrong = f"zookeeper.connect={server.connect}: /cluster/id"
    nodes = quorum.nodes.values()
    until("all say it", lambda: all(wrong in node.said() for node in nodes), STATE_S)
    until("a majority ends", lambda: sum(not node.is_alive for node in nodes) >= 2, STATE_S)
    for node in nodes:
        said = next(line for line in node.said().splitlines() if wrong in line)
        assert OTHER_CLUSTER in said
        if not node.is_alive:
            assert node.status == 1
            assert node.said().splitlines()[-1].startswith(f"quorate: error: {wrong}")
    assert z.MIGRATION not in zookeeper(server), "nothing was claimed"


@pytest.mark.timeout(120)
def test_an_ensemble_without_a_cluster_ends_the_controller_at_its_start(
    empty: Server, tmp_path: Path
) -> None:
    quorum = MigratingQuorum(tmp_path, f"{empty.connect}/wrong/chroot")
    try:
        quorum.format_and_start()
        until("one ends", lambda: not all(n.is_alive for n in quorum.nodes.values()), STATE_S)
        said = quorum.said()
        assert f"quorate: error: zookeeper.connect={empty.connect}/wrong/chroot: " in said
        assert "/cluster/id is missing" in said
    finally:
        quorum.kill()
