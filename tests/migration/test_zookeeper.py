"""The adapter against a real ZooKeeper: reading, claiming, writing under the claim, fencing."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from quorate.migration import znodes as z
from quorate.migration.errors import FencedError, ZNodeError, ZooKeeperError
from quorate.migration.operations import Create, Delete, SetData
from quorate.migration.tls import ZooKeeperTls
from quorate.migration.znodes import Tree
from quorate.migration.zookeeper import WRITE_OPERATIONS_MAX, Position, ZkClaim, ZooKeeper

from tests.certificates import make_authority, make_certificate, needs_openssl
from tests.integration.support import free_ports, here
from tests.migration.conftest import Server
from tests.processes import Process


def is_migrated(path: str) -> bool:
    return path in z.METADATA_NODES or any(
        path == root or path.startswith(root + "/") for root in z.METADATA_ROOTS
    )


def test_the_tree_is_read_as_it_is(server: Server, znodes: Tree) -> None:
    client = server.client()
    seen: list[tuple[int, int]] = []
    found = client.read_tree(lambda read, known: seen.append((read, known)))
    client.close()
    lasting = {
        path: (node.data or b"", node.version)
        for path, node in znodes.items()
        if is_migrated(path) and not node.owner
    }
    read = {
        path: (node.data or b"", node.version)
        for path, node in found.items()
        if is_migrated(path) and not node.owner
    }
    assert read == lasting
    assert len(lasting) > 300
    assert seen[-1][0] >= len(lasting)
    assert all(read <= known for read, known in seen)


def test_a_claim_takes_the_place_of_the_ephemeral_controller(server: Server) -> None:
    client = server.client()
    lease = client.claim(3000, 5)
    controller = client.read(z.CONTROLLER)
    assert controller is not None
    fields = controller.object()
    assert (fields["version"], fields["brokerid"], fields["kraftControllerEpoch"]) == (2, 3000, 5)
    assert controller.owner == 0, "it must outlive this session"
    epoch = client.read(z.CONTROLLER_EPOCH)
    assert epoch is not None
    assert (epoch.text(), lease.zk_epoch, lease.epoch_version) == ("2", 2, epoch.version)
    migration = client.read(z.MIGRATION)
    assert migration is not None
    assert migration.object() == {
        "version": 0, "kraft_controller_id": 3000, "kraft_controller_epoch": 5,
        "kraft_metadata_offset": -1, "kraft_metadata_epoch": -1,
    }  # fmt: skip
    client.close()


def test_writes_and_the_position_are_one_transaction(server: Server) -> None:
    client = server.client()
    lease = client.claim(3000, 5)
    position = Position(3000, 5, 77, 5)
    lease = client.write(
        lease,
        [
            Create("/config/topics/made", b"{}"),
            SetData("/config/topics/made", b'{"version":1,"config":{}}'),
            Delete("/config/topics/topic-16"),
        ],
        position,
    )
    made = client.read("/config/topics/made")
    assert made is not None
    assert made.object() == {"version": 1, "config": {}}
    assert client.read("/config/topics/topic-16") is None
    migration = client.read(z.MIGRATION)
    assert migration is not None
    assert Position.decode(migration) == position == lease.position
    # One operation that cannot be done leaves all of its transaction undone.
    with pytest.raises(ZooKeeperError, match="/nowhere/x"):
        client.write(
            lease,
            [Create("/config/topics/other", b""), Create("/nowhere/x", b"")],
            replace(position, offset=78),
        )
    assert client.read("/config/topics/other") is None
    migration = client.read(z.MIGRATION)
    assert migration is not None
    assert Position.decode(migration).offset == 77
    client.close()


def test_many_operations_are_several_transactions_and_the_last_says_so(empty: Server) -> None:
    client = empty.client()
    lease = client.claim(3000, 5)
    count = 3 * WRITE_OPERATIONS_MAX + 7
    operations = [Create(f"/n{number}", b"x") for number in range(count)]
    lease = client.write(lease, operations, Position(3000, 5, 9, 5))
    assert len([name for name in client.children("/") if name.startswith("n")]) == count
    assert lease.position.offset == 9
    client.close()


def test_of_two_that_both_believe_they_lead_only_the_later_writes(server: Server) -> None:
    first, second = server.client(), server.client()
    old = first.claim(3000, 5)
    old = first.write(old, [Create("/config/topics/a", b"1")], Position(3000, 5, 1, 5))
    new = second.claim(3001, 6)
    for operations in (
        [Create("/config/topics/b", b"")],
        [SetData("/config/topics/a", b"2")],
        [Delete("/config/topics/a")],
        [],
    ):
        with pytest.raises(FencedError):
            first.write(old, operations, Position(3000, 5, 2, 5))
    with pytest.raises(FencedError):
        first.claim(3000, 5)
    node = second.read("/config/topics/a")
    assert node is not None
    assert (node.data, node.version) == (b"1", 0)
    new = second.write(new, [SetData("/config/topics/a", b"3")], Position(3001, 6, 3, 6))
    with pytest.raises(FencedError):
        first.refresh(old)
    assert second.refresh(new) == new
    assert new.position.offset == 3
    first.close()
    second.close()


def test_the_same_leader_may_claim_again(server: Server) -> None:
    client = server.client()
    old = client.claim(3000, 5)
    old = client.write(old, [], Position(3000, 5, 12, 5))
    new = client.claim(3000, 5)
    assert new.zk_epoch == old.zk_epoch + 1
    assert new.position == Position(3000, 5, 12, 5), "what ZooKeeper shows is not forgotten"
    with pytest.raises(FencedError):
        client.write(old, [], Position(3000, 5, 13, 5))
    client.close()


def test_a_lost_answer_is_no_fencing(server: Server) -> None:
    """ZooKeeper did what it was asked, and the answer was lost: the claim is still ours."""
    client = server.client()
    lease = client.claim(3000, 5)
    client.write(lease, [], Position(3000, 5, 1, 5))  # as if its answer had not come
    lease = client.refresh(lease)
    assert lease.position == Position(3000, 5, 1, 5)
    assert client.write(lease, [], Position(3000, 5, 2, 5)).position.offset == 2
    client.close()


def test_released_it_belongs_to_nobody(server: Server) -> None:
    client = server.client()
    lease = client.claim(3000, 5)
    client.release()
    assert client.read(z.CONTROLLER) is None
    assert client.read(z.MIGRATION) is None
    with pytest.raises(FencedError):
        client.write(lease, [Create("/config/topics/a", b"")], Position(3000, 5, 1, 5))
    client.release()
    client.close()


def test_a_claim_names_the_malformed_znode(empty: Server) -> None:
    client = empty.client()
    raw = client._client
    raw.create(z.CONTROLLER_EPOCH)
    for epoch in (b"", b"many", b"1.5"):
        raw.set(z.CONTROLLER_EPOCH, epoch)
        said = f"^/controller_epoch: '{epoch.decode()}' is not a number$"
        with pytest.raises(ZNodeError, match=said):
            client.claim(3000, 5)
    raw.set(z.CONTROLLER_EPOCH, b"1")
    raw.create(z.CONTROLLER)
    for controller, said in (
        (b"{}", "brokerid is missing or null"),
        (b'{"brokerid":"one"}', "brokerid 'one' is not a number"),
        (b'{"brokerid":[1]}', r"brokerid \[1\] is not a number"),
        (b'{"brokerid":Infinity}', "brokerid inf is not a number"),
        (b'{"brokerid":true}', "brokerid True is not a number"),
        (b'{"brokerid":2147483648}', "brokerid 2147483648 has more than 32 bits"),
        (b'{"brokerid":1,"kraftControllerEpoch":null}', "kraftControllerEpoch is missing or null"),
        (b'{"brokerid":1,"kraftControllerEpoch":"x"}', "kraftControllerEpoch 'x' is not a number"),
    ):
        raw.set(z.CONTROLLER, controller)
        with pytest.raises(ZNodeError, match=f"^/controller: {said}$"):
            client.claim(3000, 5)
        if b"kraftControllerEpoch" in controller:
            with pytest.raises(ZNodeError, match=f"^/controller: {said}$"):
                client.release()
    raw.set(z.CONTROLLER, b'{"brokerid":"1","kraftControllerEpoch":"-1"}')
    assert client.claim(3000, 5).zk_epoch == 2, "numbers as text are accepted"
    client.close()


def test_a_paused_controller_cannot_write_when_it_wakes_up(server: Server, tmp_path: Path) -> None:
    program = Path(__file__).with_name("rival.py")
    command = (sys.executable, program, server.connect, "3000", "5")
    with Process("rival", tmp_path / "rival.log", *command) as rival:
        rival.error_file = tmp_path / "rival.err"
        rival.start()
        rival.wait_said("wrote 1\n")
        assert rival.said().startswith("claimed\nwrote 1\n")
        rival.pause()
        client = server.client()
        lease = client.claim(3001, 6)
        before = client.read("/brokers/seqid")
        assert before is not None
        lease = client.write(
            lease, [SetData("/brokers/seqid", b"of 3001")], Position(3001, 6, 500, 6)
        )
        rival.resume()
        assert rival.wait() == 0
        assert rival.said().splitlines()[-1] == "fenced"
        node = client.read("/brokers/seqid")
        assert node is not None
        assert (node.data, node.version) == (b"of 3001", before.version + 1)
        migration = client.read(z.MIGRATION)
        assert migration is not None
        assert Position.decode(migration) == Position(3001, 6, 500, 6)
        client.close()


def test_who_cannot_be_reached_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorate.migration.zookeeper.CONNECT_TIMEOUT_S", 1.0)
    client = ZooKeeper("127.0.0.1:1")
    with pytest.raises(
        ZooKeeperError, match=r"zookeeper\.connect=127\.0\.0\.1:1: no session"
    ) as said:
        client.start()
    assert "\n" not in str(said.value)


def test_what_zookeeper_holds_survives_a_restart(server: Server) -> None:
    client = server.client()
    lease = client.claim(3000, 5)
    server.kill()
    with pytest.raises(ZooKeeperError):
        client.write(lease, [Create("/config/topics/a", b"")], Position(3000, 5, 1, 5))
    server.start()
    lease = client.refresh(lease)
    lease = client.write(lease, [Create("/config/topics/b", b"")], Position(3000, 5, 2, 5))
    controller = client.read(z.CONTROLLER)
    assert controller is not None
    assert json.loads(controller.text())["brokerid"] == 3000
    client.close()


class Overtaken(ZooKeeper):
    """One that is paused between what it reads and the transaction that it then commits: meanwhile
    `rival` does something.
    """

    rival: Callable[[], object] | None = None

    def _commit(self, *arguments: Any) -> None:
        rival, self.rival = self.rival, None
        if rival is not None:
            rival()
        super()._commit(*arguments)


@pytest.fixture
def overtaken(server: Server) -> Iterator[Overtaken]:
    made = Overtaken(server.connect, session_timeout_s=6.0)
    made.start()
    yield made
    made.close()


def test_a_claim_that_was_decided_on_before_another_changes_nothing(
    server: Server, overtaken: Overtaken
) -> None:
    other = server.client()
    leases: list[ZkClaim] = []
    overtaken.rival = lambda: leases.append(other.claim(3001, 6))
    with pytest.raises(ZooKeeperError, match="another controller claimed it at the same time"):
        overtaken.claim(3000, 5)
    (lease,) = leases
    assert other.refresh(lease) == lease, "nothing of the late claim was done"
    controller = other.read(z.CONTROLLER)
    assert controller is not None
    assert controller.object()["brokerid"] == 3001
    with pytest.raises(FencedError, match="controller 3001 holds ZooKeeper since epoch 6"):
        overtaken.claim(3000, 5)
    other.close()


def test_a_claim_does_not_come_before_a_brokers_that_is_elected_meanwhile(
    server: Server, overtaken: Overtaken
) -> None:
    """As Kafka elects: /controller and /controller_epoch in one transaction."""
    other = server.client()
    raw = other._client
    if other.read(z.CONTROLLER) is not None:
        raw.delete(z.CONTROLLER)

    def elect() -> None:
        transaction = raw.transaction()
        transaction.create(z.CONTROLLER, b'{"version":1,"brokerid":2,"timestamp":"0"}')
        transaction.set_data(z.CONTROLLER_EPOCH, b"2")
        assert not [each for each in transaction.commit() if isinstance(each, Exception)]

    overtaken.rival = elect
    with pytest.raises(ZooKeeperError, match="another controller claimed it at the same time"):
        overtaken.claim(3000, 5)
    assert other.read(z.MIGRATION) is None, "all of a claim, or nothing"
    # The next attempt sees the broker, and fences it.
    assert overtaken.claim(3000, 5).zk_epoch == 3
    other.close()


def test_who_led_before_does_not_come_back_where_controller_is_gone(server: Server) -> None:
    client = server.client()
    client.claim(3001, 6)
    client._client.delete(z.CONTROLLER)
    with pytest.raises(FencedError, match="controller 3001 holds ZooKeeper since epoch 6"):
        client.claim(3000, 5)
    assert client.claim(3002, 7).position.controller_id == 3002
    # Once a broker leads again, what a quorum left in /migration is of the past.
    client._client.delete(z.CONTROLLER)
    client._client.create(z.CONTROLLER, b'{"version":1,"brokerid":1,"timestamp":"0"}')
    assert client.claim(3000, 1).epoch == 1
    client.close()


def test_what_is_taken_while_it_is_given_back_stays_taken(
    server: Server, overtaken: Overtaken
) -> None:
    overtaken.claim(3000, 5)
    other = server.client()
    leases: list[ZkClaim] = []
    overtaken.rival = lambda: leases.append(other.claim(3001, 6))
    with pytest.raises(ZooKeeperError, match="took it at the same time"):
        overtaken.release()
    assert other.refresh(leases[0]) == leases[0]
    # A broker that leads is left alone, and what a quorum left behind goes.
    other._client.delete(z.CONTROLLER)
    other._client.create(z.CONTROLLER, b'{"version":1,"brokerid":1,"timestamp":"0"}')
    overtaken.release()
    controller = other.read(z.CONTROLLER)
    assert controller is not None
    assert controller.object()["brokerid"] == 1
    assert other.read(z.MIGRATION) is None
    other.close()


@needs_openssl
def test_tls_in_both_directions(jars: Path, tmp_path: Path) -> None:
    """ZooKeeper's own TLS: it shows a certificate, and asks for ours."""
    authority = make_authority(tmp_path, "authority")
    stores = {}
    for name in ("zookeeper", "controller"):
        certificate, key = make_certificate(tmp_path, name, authority)
        stores[name] = tmp_path / f"{name}-store.pem"
        stores[name].write_bytes(key.read_bytes() + certificate.read_bytes())
    (port,) = free_ports(1)
    settings = {
        "secureClientPort": port,
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": stores["zookeeper"],
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": authority[0],
        "ssl.trustStore.type": "PEM",
    }
    with Server(tmp_path / "zk", jars, settings) as server:
        server.start()
        tls = ZooKeeperTls(authority[0], stores["controller"])
        client = ZooKeeper(f"127.0.0.1:{port}", session_timeout_s=6.0, tls=tls)
        client.start()
        assert client.claim(3000, 5).zk_epoch == 1
        client.close()
        stranger = make_authority(tmp_path, "stranger")
        for refused in (
            ZooKeeperTls(stranger[0], stores["controller"]),
            ZooKeeperTls(authority[0]),
        ):
            client = ZooKeeper(f"127.0.0.1:{port}", session_timeout_s=6.0, tls=refused)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("quorate.migration.zookeeper.CONNECT_TIMEOUT_S", 3.0)
                with pytest.raises(ZooKeeperError, match="no session"):
                    client.start()
        properties = tmp_path / "tls.properties"
        properties.write_text(
            "zookeeper.ssl.client.enable=true\n"
            f"zookeeper.ssl.truststore.location={authority[0]}\n"
            f"zookeeper.ssl.keystore.location={stores['controller']}\n"
        )
        where = ("--zookeeper", f"127.0.0.1:{port}", "--zk-tls-config-file", properties)
        ran = here("migrate", "plan", *where, "--json")
        assert "/cluster/id: there is no cluster here" in ran.json()["problems"]
