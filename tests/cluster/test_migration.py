"""A cluster of Kafka moves out of ZooKeeper into a Quorum, from the chart.

ZooKeeper and a broker of Kafka 3.9.1 run on this machine, where the pods of a single node reach
them by the node's address, and they reach the nodes by the addresses of their Services. Where the
cluster's node is another machine, there is nobody to migrate, and this is left out.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from quorate.migration import znodes as z

from tests.cluster import figures
from tests.cluster.lab import Lab, run
from tests.migration.brokers import Broker, fill
from tests.migration.client import KafkaClient, Load
from tests.migration.conftest import Server, jars
from tests.tools.documents import block

__all__ = ["jars"]  # a fixture

pytestmark = pytest.mark.timeout(900)

FIRST = 3000
CLUSTER = "-osK_z-yS4WP9LBCencUOA"
OTHER_CLUSTER = "yFPgY5iXQYqr5sMxfdxu0Q"
TOPIC = "before"
TOPIC_ID = "AAAAAAAAAAAAAAAAAAABAA"
PAUSE_S_MAX = 45.0
"""How long a write may take with everything that happens: a producer's default is 120 s."""
SCHEDULED_S_MAX = 360.0
"""A scheduler that misses that a pod's volume is bound looks again after five minutes."""
CLIENT = (
    "security.protocol=SSL",
    f"ssl.certificate.location=/etc/quorate/tls/node-{FIRST}.crt",
    "ssl.key.location=/etc/quorate/key/tls.key",
    "ssl.ca.location=/etc/quorate/tls/ca.crt",
)


@pytest.fixture
def address(lab: Lab) -> str:
    """Where pods reach this machine."""
    found = lab.get("nodes")["items"][0]["status"]["addresses"]
    address = next(each["address"] for each in found if each["type"] == "InternalIP")
    try:
        with socket.create_server((address, 0)):
            return str(address)
    except OSError:
        pytest.skip(f"the cluster's node {address} is not this machine: its pods cannot reach us")


@pytest.fixture
def zookeeper(jars: Path, tmp_path: Path, address: str) -> Iterator[Server]:
    """It holds a cluster with a topic, whose broker is down."""
    with Server(tmp_path / "zookeeper", jars, host=address) as server:
        server.start()
        fill(server.connect, CLUSTER, TOPIC, TOPIC_ID, [1])
        yield server


@pytest.fixture
def broker(jars: Path, tmp_path: Path, address: str, zookeeper: Server) -> Iterator[Broker]:
    """Broker 1, ready to be started: it migrates to the nodes of the Quorum `meta`."""
    with socket.create_server((address, 0)) as chosen:
        port = chosen.getsockname()[1]
    made = Broker(
        tmp_path,
        jars,
        1,
        port,
        zookeeper.connect,
        **{
            "listeners": f"PLAINTEXT://{address}:{port}",
            "inter.broker.protocol.version": "3.9",
            "zookeeper.metadata.migration.enable": "true",
            "controller.listener.names": "KAFKA",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,KAFKA:PLAINTEXT",
        },
    )
    made.host = address
    yield made
    made.kill()


def start(broker: Broker, lab: Lab, hosts: Path) -> None:
    """Start a broker that resolves the names of the Services, as it would in a pod.

    The Quorum must be ready. Until kube-proxy has programmed the rules of a new Service, which
    takes it a second or more, packets to the Service's address leave this machine by its default
    route. A gateway there may accept the connection, and the broker takes what it answers for the
    size of a response: its heap is too small for "HTTP" or a TLS alert as a number.
    """
    names = [f"{lab.name}-{ordinal}" for ordinal in range(3)]
    lines = [f"127.0.0.1 localhost {socket.gethostname()}"]
    lines += [
        f"{lab.get('service', name)['spec']['clusterIP']} {name}.{lab.namespace}.svc"
        for name in names
    ]
    hosts.write_text("\n".join(lines) + "\n")
    servers = ",".join(f"{name}.{lab.namespace}.svc:9094" for name in names)
    broker.settings["controller.quorum.bootstrap.servers"] = servers
    broker.start(f"-Djdk.net.hosts.file={hosts}")


def until_migration(lab: Lab, state: str, brokers: int) -> None:
    """Wait until the resource says so."""
    wanted = {"state": state, "brokersInZooKeeperMode": brokers}
    lab.until(f"status.migration is {wanted}", lambda: lab.status.get("migration") == wanted)


def migrate_status(lab: Lab, zookeeper: Server) -> dict[str, Any]:
    """`quorate migrate status` in a pod."""
    lines = "\\n".join(CLIENT)
    servers = f"{lab.name}-controllers.{lab.namespace}.svc:9093"
    command = (
        f"quorate migrate status --zookeeper {zookeeper.connect} --bootstrap-controller {servers} "
        "--command-config /tmp/client.properties --json"
    )
    script = f"printf '{lines}\\n' > /tmp/client.properties; {command}"
    found: dict[str, Any] = json.loads(lab.kubectl_exec(0, "sh", "-c", script))
    return found


def has_topic(server: Server, topic: str) -> bool:
    client = server.client()
    try:
        return f"{z.TOPICS}/{topic}" in client.read_tree()
    finally:
        client.close()


def made(client: KafkaClient, topic: str) -> Callable[[], bool]:
    """Whether a topic is there, asked for at the broker, which forwards it."""

    def is_made() -> bool:
        try:
            return client.create_topic(client.addresses[0], topic) in (0, 36)
        except OSError:
            return False

    return is_made


def produced(client: KafkaClient, topic: str) -> Callable[[], bool]:
    """Whether a record is taken: its leader hears of the topic a moment after it is made."""

    def is_produced() -> bool:
        try:
            return client.produce(topic, [b"1"]) >= 0
        except (OSError, LookupError, AssertionError):
            return False

    return is_produced


def stranger(lab: Lab, zookeeper: Server) -> None:
    """A Quorum of another cluster that is sent to the same ensemble."""
    spec = lab.quorum["spec"] | {"replicas": 1, "clusterId": OTHER_CLUSTER}
    resource = {"apiVersion": "quorate.dev/v1alpha1", "kind": "Quorum", "spec": spec}
    resource["metadata"] = {"name": "stranger"}
    lab.kubectl("create", "-f", "-", text=json.dumps(resource))


def test_a_cluster_of_kafka_moves_in(
    lab: Lab, zookeeper: Server, broker: Broker, tmp_path: Path
) -> None:
    # The commands of the chart's page. Its pod does not satisfy the standard of this namespace.
    names = {
        "zk:2181/kafka": zookeeper.connect,
        "NAMESPACE": lab.namespace,
        "=ID": f"={CLUSTER}",
        "quorate:0.1.0": lab.images.controller,
        **{f"kubectl {each}": f"kubectl -n default {each}" for each in ("run", "logs", "delete")},
    }
    plan = block("charts/quorate/README.md", "migrate plan")
    assert CLUSTER in lab.paste(plan, names, check=False)  # its broker is down
    began = time.monotonic()
    lab.paste(block("charts/quorate/README.md", "quorum.clusterId=ID"), names)
    stranger(lab, zookeeper)
    lab.until_ready(3)
    assert lab.status["clusterId"] == CLUSTER
    assert sorted(lab.directories()) == [FIRST, FIRST + 1, FIRST + 2]
    start(broker, lab, tmp_path / "hosts")
    broker.wait_ready()
    until_migration(lab, "MIGRATION", 1)
    figures.add("helm install, until a broker is led", time.monotonic() - began)
    client = KafkaClient([broker.address])
    load = Load(client, TOPIC).start()

    # The leader goes, and what clients ask of the broker goes to the next one.
    leader = lab.leader
    assert leader in range(FIRST, FIRST + 3)
    lab.kubectl("delete", "pod", f"{lab.name}-{leader - FIRST}", "--force", "--grace-period=0")
    lab.until("the broker has a topic made", made(client, "meanwhile"))
    lab.until("ZooKeeper has it too", lambda: has_topic(zookeeper, "meanwhile"))
    lab.until_ready(3)
    lab.until("both say the same", lambda: migrate_status(lab, zookeeper)["differences"] == [])
    assert "MIGRATION" in lab.paste(block("charts/quorate/README.md", "migrate status"), names)
    lab.until("a record is taken", produced(client, "meanwhile"))

    # A rollback is refused as long as controllers run, and changes nothing.
    said = lab.paste(block("charts/quorate/README.md", "migrate rollback"), names)
    assert "a controller is running at" in said
    assert migrate_status(lab, zookeeper)["state"] == "MIGRATION"

    # A fourth controller comes, is ready like the others, and goes.
    lab.scale(4)
    lab.until_ready(4, timeout_s=SCHEDULED_S_MAX)
    assert sorted(lab.directories()) == [FIRST, FIRST + 1, FIRST + 2, FIRST + 3]
    everybody = sorted(lab.directories())
    lab.until(
        "it says that it migrates",
        lambda: migrate_status(lab, zookeeper)["controllersReady"] == everybody,
    )
    lab.scale(3)
    lab.until_ready(3)

    # A quorum of another cluster has begun nothing, and says why.
    def said() -> dict[str, Any]:
        found = lab.get("quorum", "stranger").get("status") or {}
        return lab.condition("Ready", found)

    wrong = f"zookeeper.connect={zookeeper.connect}: /cluster/id contains {CLUSTER}"
    lab.until("the stranger is refused", lambda: said().get("reason") == "WrongEnsemble")
    assert wrong in said()["message"]
    run("kubectl", "-n", lab.namespace, "delete", "quorum", "stranger", "--wait=false")

    # The broker goes on without ZooKeeper, and then the controllers do.
    began = time.monotonic()
    broker.stop()
    broker.become_kraft()
    broker.start(f"-Djdk.net.hosts.file={tmp_path / 'hosts'}")
    broker.wait_ready()
    until_migration(lab, "MIGRATION", 0)
    before = lab.uids("pods")
    lab.paste(block("charts/quorate/README.md", "quorum.migration.enabled=false"))
    until_migration(lab, "POST_MIGRATION", 0)
    lab.until_ready(3)
    figures.add("a broker in KRaft mode, the migration ended", time.monotonic() - began)
    names = [f"{lab.name}-{ordinal}" for ordinal in range(3)]
    assert all(lab.uids("pods")[name] != before[name] for name in names)
    zookeeper.kill()
    lab.until("the broker has a topic made", made(client, "after"))
    lab.until("a record is taken", produced(client, "after"))

    load.stop()
    assert len(load.acknowledged) > 50, load.faults[-5:]
    assert set(load.acknowledged) <= set(load.read)
    assert load.longest_s < PAUSE_S_MAX, load.faults
    print(f"{len(load.acknowledged)} writes, the longest took {load.longest_s:.1f} s")
