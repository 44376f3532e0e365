"""A cluster of Kafka 4.3 whose controllers use SASL over TLS is taken over, and given back.

Controllers authenticate with PLAIN, because SCRAM credentials are in the log that they have yet to
replicate, the broker with SCRAM. It runs all the time; a delegation token and an ACL stay valid.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.certificates import make_authority, make_certificate, needs_openssl
from tests.integration.support import here
from tests.processes import until
from tests.wire.kafka_nodes import KafkaCluster
from tests.wire.test_sasl_brokers import (
    KEY,
    OF_ALICE,
    PLAIN,
    SCRAM,
    TOKEN,
    TOKENS,
    TOPICS,
    USERS,
    client_file,
    creation,
)
from tests.wire.test_takeover_runbook import RELEASE, Operator

ACLS = "org.apache.kafka.tools.AclCommand"
PASSWORD = "the controllers'"
AS_CONTROLLER = f'username="controller" password="{PASSWORD}"'
AS_BROKER = 'username="broker" password="broker\'s"'
SECRETS = (KEY, PASSWORD, "alice's", "broker's")

pytestmark = needs_openssl


def secure(cluster: KafkaCluster, folder: Path) -> None:
    """Require SASL of all callers, with Kafka's settings of one listener, and authorize them."""
    authority = make_authority(folder, "authority")
    both: dict[str, object] = {
        "listener.security.protocol.map": "CONTROLLER:SASL_SSL,CLIENT:SASL_PLAINTEXT",
        "listener.name.controller.ssl.truststore.type": "PEM",
        "listener.name.controller.ssl.truststore.location": authority[0],
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:controller;User:broker",
        "delegation.token.secret.key": KEY,
    }
    for node_id, node in cluster.controllers.items():
        store = folder / f"store-{node_id}.pem"
        files = make_certificate(folder, f"controller-{node_id}", authority, [f"node-{node_id}"])
        store.write_text("".join(each.read_text() for each in reversed(files)))
        node.settings |= both | {
            "listener.name.controller.ssl.keystore.type": "PEM",
            "listener.name.controller.ssl.keystore.location": store,
            "listener.name.controller.ssl.principal.mapping.rules": (
                "RULE:^CN=controller-[0-9]+$/controller/"
            ),
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.controller.plain.sasl.jaas.config": (
                f'{PLAIN} {AS_CONTROLLER} user_controller="{PASSWORD}";'
            ),
            "listener.name.controller.scram-sha-512.sasl.jaas.config": f"{SCRAM};",
        }
    cluster.broker.settings |= both | {
        "listeners": f"CLIENT://{cluster.broker_address}",
        "inter.broker.listener.name": "CLIENT",
        "sasl.mechanism.controller.protocol": "SCRAM-SHA-512",
        "listener.name.controller.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.controller.scram-sha-512.sasl.jaas.config": f"{SCRAM} {AS_BROKER};",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": f"{PLAIN} {AS_BROKER} {USERS};",
        "listener.name.client.scram-sha-256.sasl.jaas.config": f"{SCRAM};",
    }


@pytest.fixture
def operator(kafka_tool: Callable[..., str], tmp_path: Path) -> Iterator[Operator]:
    cluster = KafkaCluster(tmp_path, kafka_tool, static=False)
    secure(cluster, tmp_path)
    made = Operator(cluster, tmp_path)
    try:
        credential = "SCRAM-SHA-512=[name=broker,password=broker's]"
        cluster.format_and_start(RELEASE, "--add-scram", credential)
        yield made
    finally:
        made.kill()
        cluster.kill()


class Alice:
    """A client of the broker that may only create topics whose names begin with alice-."""

    def __init__(self, cluster: KafkaCluster, folder: Path) -> None:
        self._tool = cluster.kafka_tool
        self._folder = folder
        self._servers = ("--bootstrap-server", cluster.broker_address, "--command-config")
        self._file = client_file(folder, "PLAIN", f'{PLAIN} username="alice" password="alice\'s";')

    def may_create_her_own(self, topic: str) -> None:
        until(f"{topic} is created", lambda: self._creates(topic), 60)

    def _creates(self, topic: str) -> bool:
        """Whether it exists. A request that a broker forwards times out without a leader."""
        try:
            self._tool(TOPICS, *self._servers, self._file, *creation(topic), "--if-not-exists")
        except AssertionError as error:
            if "TimeoutException" not in str(error):
                raise
            return False
        return True

    def may_not_create(self, topic: str) -> None:
        with pytest.raises(AssertionError, match="TopicAuthorizationException"):
            self._tool(TOPICS, *self._servers, self._file, *creation(topic))

    def create_token(self) -> tuple[str, str]:
        """Its id and its secret."""
        lifetime = ("--max-life-time-period", "3600000", "--renewer-principal", "User:alice")
        said = self._tool(TOKENS, *self._servers, self._file, "--create", *lifetime)
        found = TOKEN.search(said)
        assert found is not None, said
        return found[1], found[2]

    def described(self) -> str:
        return self._tool(TOKENS, *self._servers, self._file, *OF_ALICE)

    def renew(self, secret: str) -> None:
        """The controllers find a token by its secret, which they make with their key."""
        renewed = ("--renew", "--renew-time-period", "1800000", "--hmac", secret)
        assert "Completed" in self._tool(TOKENS, *self._servers, self._file, *renewed)

    def topics_by(self, token: tuple[str, str]) -> list[str]:
        """The topics that a client sees who authenticates with the token."""
        jaas = f'{SCRAM} username="{token[0]}" password="{token[1]}" tokenauth="true";'
        file = client_file(self._folder, "SCRAM-SHA-256", jaas)
        return self._tool(TOPICS, *self._servers, file, "--list").split()


def allow_alice(cluster: KafkaCluster, folder: Path) -> None:
    (folder / "admin").mkdir()
    admin = client_file(folder / "admin", "PLAIN", f"{PLAIN} {AS_BROKER};")
    cluster.kafka_tool(
        *(ACLS, "--bootstrap-server", cluster.broker_address, "--command-config", admin, "--add"),
        *("--allow-principal", "User:alice", "--operation", "Create", "--operation", "Describe"),
        *("--topic", "alice-", "--resource-pattern-type", "prefixed"),
    )


def take_over(operator: Operator) -> None:
    """The steps of docs/takeover.md where the controllers' listener requires SASL."""
    for node_id, node in operator.cluster.controllers.items():
        report = here("takeover", "check", "--config", node.properties, "--json").json()
        wrong = [each for each in report["checks"] if each["state"] == "failed"]
        assert [each["check"] for each in wrong] == ["process"], wrong
        made = here("takeover", "config", "--config", node.properties)
        assert made.status == 0, made
        operator.quorate_properties(node_id).write_text(made.out)
    operator.cluster.stop_controllers()
    for node_id, node in operator.cluster.controllers.items():
        written = ("--quorate-config", operator.quorate_properties(node_id))
        ran = here("takeover", "check", "--config", node.properties, *written)
        assert ran.status == 0, ran
        assert "RAFT is SSL: controllers know this one as User:controller" in ran.out
    for process in operator.quorates.values():
        process.start()
    for process in operator.quorates.values():
        process.wait_said("listening for Kafka's brokers")
    own = ("--command-config", operator.quorate_properties(1))
    listed = operator.quorate("cluster", *own, "list-endpoints")
    assert re.search(r"^101\t.*\tunfenced", listed.out, re.MULTILINE), listed


@pytest.mark.timeout(300)
def test_sasl_controllers_are_taken_over_and_given_back(operator: Operator, tmp_path: Path) -> None:
    cluster, broker = operator.cluster, operator.cluster.broker.process
    allow_alice(cluster, tmp_path)
    alice = Alice(cluster, tmp_path)
    alice.may_create_her_own("alice-before")
    old = alice.create_token()

    take_over(operator)
    alice.may_create_her_own("alice-during")
    alice.may_not_create("other")
    assert old[0] in alice.described()
    alice.renew(old[1])
    assert alice.topics_by(old) == ["alice-before", "alice-during"]
    new = alice.create_token()

    for process in operator.quorates.values():
        assert process.stop() == 0, process.recently()[-3000:]
    cluster.start_controllers()
    alice.may_create_her_own("alice-after")
    alice.may_not_create("other")
    alice.renew(new[1])
    everything = ["alice-after", "alice-before", "alice-during"]
    assert [alice.topics_by(each) for each in (old, new)] == [everything, everything]

    assert broker is not None
    assert cluster.broker.process is broker
    assert broker.poll() is None
    for node in cluster.controllers.values():
        assert not re.search(r"FATAL|encountered .*fault", node.said())
    for process in operator.quorates.values():
        said = process.said()
        assert not [each for each in (*SECRETS, old[1], new[1]) if each in said]
