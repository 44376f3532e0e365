"""A Quorum takes over the controllers of a running cluster of Kafka, one voter at a time, and gives
them back: topics are created all the time, and a leader is killed.

The image of Kafka takes minutes to build, so this is left out unless asked for: see `test_kafka`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import pytest

from tests.cluster import figures
from tests.cluster.conftest import STEADY
from tests.cluster.kafka_controllers import CLUSTER, FIRST, LISTENER, KafkaControllers, Load
from tests.cluster.lab import Lab, Object
from tests.cluster.test_kafka import kafka_image

__all__ = ["kafka_image"]  # a fixture

pytestmark = pytest.mark.timeout(3_000)

OWN_FIRST = 3100
OWN = frozenset(range(OWN_FIRST, OWN_FIRST + 3))
"""The node ids of the Quorum's pods."""
JOINED_S = 280
"""Until the first pod is a voter."""
MOVED_S = 600.0
"""How long three voters may take to be replaced, with a kill, on a busy machine."""


PLAINTEXT = ("quorum.tls.enabled=false", "quorum.kafkaListener.protocol=PLAINTEXT")
SECURED = ("quorum.kafkaListener.protocol=SSL",)


def install(lab: Lab, kafka: KafkaControllers, security: Sequence[str]) -> None:
    """Install the chart, which begins the takeover."""
    values = [
        f"quorum.takeover.controllers[{index}].{field}={value}"
        for index, controller in enumerate(kafka.controllers)
        for field, value in controller.items()
    ]
    values += [
        f"quorum.clients[{index}].{field}={value}"
        for index, client in enumerate(kafka.clients)
        for field, value in client.items()
    ]
    lab.install(
        f"quorum.clusterId={CLUSTER}",
        f"quorum.firstNodeId={OWN_FIRST}",
        "quorum.kafkaListener.enabled=true",
        f"quorum.kafkaListener.name={LISTENER}",
        STEADY,
        *security,
        *values,
    )


def voters(status: Object) -> set[int]:
    """The node ids of the voters."""
    return {int(voter.split("-", 1)[0]) for voter in status.get("voterSet") or ()}


def phase(status: Object) -> str:
    return str((status.get("takeover") or {}).get("phase", ""))


def until_phase(lab: Lab, wanted: str, ids: frozenset[int]) -> None:
    """Wait until the resource says so, with exactly these voters."""

    def is_there() -> bool:
        found = lab.quorum
        status = found.get("status") or {}
        return (
            status.get("observedGeneration") == found["metadata"]["generation"]
            and phase(status) == wanted
            and voters(status) == ids
        )

    lab.until(f"the takeover is {wanted}, with the voters {sorted(ids)}", is_there, MOVED_S)


def roll_back(lab: Lab, value: bool) -> None:
    """Say in the resource whether Kafka's controllers are to be the voters again."""
    patch = {"spec": {"takeover": {"rollBack": value}}}
    lab.kubectl("patch", "quorum", lab.name, "--type", "merge", "-p", json.dumps(patch))


def remove(lab: Lab) -> None:
    """Remove the takeover from the resource: the pods restart, and talk to each other by gRPC."""
    began = time.monotonic()
    before = lab.uids("pods")
    patch = json.dumps([{"op": "remove", "path": "/spec/takeover"}])
    lab.kubectl("patch", "quorum", lab.name, "--type", "json", "-p", patch)

    def are_restarted() -> bool:
        now = lab.uids("pods")
        names = [f"{lab.name}-{ordinal}" for ordinal in range(3)]
        return all(now.get(name, before[name]) != before[name] for name in names)

    lab.until("the pods are restarted", are_restarted)
    lab.until_ready(3)
    figures.add("the takeover removed from the resource", time.monotonic() - began)
    assert voters(lab.status) == OWN
    assert not phase(lab.status)


def kill_a_leader(lab: Lab, kafka: KafkaControllers) -> None:
    """Kill Kafka's controller that leads, once the first pod is a voter beside it."""
    lab.until("the takeover begins", lambda: phase(lab.status))
    # The rest takes a few seconds.
    condition = "--for=jsonpath={.status.takeover.phase}=TakingOver"
    name = f"quorum/{lab.name}"
    said = lab.kubectl("wait", condition, name, f"--timeout={JOINED_S}s", "-o", "json")
    leader = json.loads(said)["status"]["leader"]["id"]
    assert leader in kafka.ids, said
    kafka.kill(leader - FIRST)
    # No voter is replaced until it is back.
    still = (lab.status.get("takeover") or {}).get("kafkaVoters") or ()
    assert leader in still, f"{leader} was replaced before it was killed"
    print(f"killed {leader}, which led, beside {still}")


def check(lab: Lab, kafka: KafkaControllers, load: Load, name: str) -> None:
    """Nothing that was acknowledged is missing, and topics can be created."""
    acknowledged = load.acknowledged()
    missing = acknowledged - kafka.topics()
    assert not missing, sorted(missing)
    kafka.create_topic(name)
    assert name in kafka.topics()
    lab.until("the load goes on", load.goes_on())
    print(f"{len(acknowledged)} topics acknowledged, none missing")


def test_kafkas_controllers_are_taken_over_and_given_back(lab: Lab, kafka_image: str) -> None:
    kafka = KafkaControllers(lab, kafka_image)
    kafka.start()
    kafka.until_ready()
    load = Load(kafka)
    load.start()
    lab.until("the load is acknowledged", load.goes_on())

    # The takeover. Its leader is killed when both kinds vote.
    began = time.monotonic()
    install(lab, kafka, PLAINTEXT)
    kill_a_leader(lab, kafka)
    until_phase(lab, "Complete", OWN)
    lab.until_ready(3)
    figures.add("Kafka's controllers taken over, a leader killed", time.monotonic() - began)
    assert lab.status["clusterId"] == CLUSTER
    check(lab, kafka, load, "taken-over")

    # The way back.
    began = time.monotonic()
    roll_back(lab, True)
    until_phase(lab, "RolledBack", kafka.ids)
    figures.add("Kafka's controllers are the voters again", time.monotonic() - began)
    assert kafka.leader() in kafka.ids, kafka.quorum()
    check(lab, kafka, load, "rolled-back")

    # Once more, and then without Kafka's controllers.
    began = time.monotonic()
    roll_back(lab, False)
    until_phase(lab, "Complete", OWN)
    lab.until_ready(3)
    figures.add("Kafka's controllers taken over again", time.monotonic() - began)
    kafka.delete()
    leader = lab.leader
    lab.kubectl("delete", "pod", f"{lab.name}-{leader - OWN_FIRST}", "--force", "--grace-period=0")
    check(lab, kafka, load, "without-kafka")
    lab.until_ready(3)
    until_phase(lab, "Complete", OWN)

    # The end.
    remove(lab)
    check(lab, kafka, load, "by-grpc")

    acknowledged = load.stop()
    assert acknowledged, load.errors()
    missing = acknowledged - kafka.topics()
    assert not missing, sorted(missing)
    print(f"{len(acknowledged)} topics acknowledged, none lost")


def test_a_takeover_with_certificates_of_the_operator(lab: Lab, kafka_image: str) -> None:
    """The pods wait for Kafka's controllers, and these for their certificates."""
    kafka = KafkaControllers(lab, kafka_image, is_secured=True)
    install(lab, kafka, SECURED)
    kafka.start()
    kafka.until_ready()
    kafka.create_topic("before")
    until_phase(lab, "Complete", OWN)
    lab.until_ready(3)
    kafka.create_topic("after")
    assert kafka.leader() in OWN
    roll_back(lab, True)
    until_phase(lab, "RolledBack", kafka.ids)
    kafka.create_topic("rolled-back")
    roll_back(lab, False)
    until_phase(lab, "Complete", OWN)
    kafka.delete()
    # From now on there is an authorizer, and the broker has its rights.
    remove(lab)
    environment = json.dumps(lab.get("statefulset", lab.name))
    assert "QUORATE_AUTHORIZER_CLASS_NAME" in environment
    assert {"before", "after", "rolled-back"} <= kafka.topics()
    broker = lab.kubectl("logs", "kafka-broker-0", "--since=20s")
    assert "CLUSTER_AUTHORIZATION_FAILED" not in broker, broker[-2000:]
