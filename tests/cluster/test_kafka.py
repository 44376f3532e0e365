"""Brokers of Kafka on a Quorum, from the example's chart: a producer writes while disks of a
controller and of a broker are lost, and while the brokers restart.

The image of Kafka takes minutes to build, so this is left out unless asked for: `--kafka` builds it
where the lab is, the variable QUORATE_TEST_KAFKA_IMAGE names one that the cluster has.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections import Counter
from typing import NamedTuple

import pytest

from tests.cluster import figures
from tests.cluster.conftest import build_image
from tests.cluster.lab import ROOT, SMALL, Lab
from tests.tools.documents import block

pytestmark = pytest.mark.timeout(1_500)

IMAGE_VARIABLE = "QUORATE_TEST_KAFKA_IMAGE"
BROKERS = 3
TOPIC = "orders"
PAGE_NAMESPACE = "NAMESPACE"
CHART = "examples/kafka/chart"
RATE = 100
"""Records per second."""
PAUSE_S_MAX = 60.0
"""Between two acknowledgements, with everything that happens: a producer gives up after 120 s."""
IN_SYNC_S = 300.0


@pytest.fixture
def kafka_image(request: pytest.FixtureRequest) -> str:
    given = os.environ.get(IMAGE_VARIABLE)
    if given:
        return given
    if not request.config.getoption("--kafka"):
        pytest.skip(f"--kafka builds an image of Kafka; {IMAGE_VARIABLE} names one")
    return build_image("quorate-kafka:test", folder=ROOT / "examples" / "kafka")


class Kafka:
    """The brokers of a release, and the pod with Kafka's tools. image: of both."""

    def __init__(self, lab: Lab, image: str) -> None:
        self._lab = lab
        repository, _, tag = image.rpartition(":")
        values = [f"quorate.{value}" for value in (*lab.images.values, *SMALL)]
        values += [
            f"brokers.image.repository={repository}",
            f"brokers.image.tag={tag}",
            "brokers.storage.size=256Mi",
            "brokers.jvmOptions=-Xmx300m -XX:TieredStopAtLevel=1",
            "brokers.resources.requests.cpu=50m",
            "brokers.resources.requests.memory=256Mi",
            # 50 partitions of offsets would occupy the lab's one disk for a while.
            "brokers.config.offsets\\.topic\\.num\\.partitions=3",
        ]
        sets = " ".join(f"'--set={value}'" for value in values)
        self._names = {
            CHART: f"{CHART} {sets}",
            PAGE_NAMESPACE: lab.namespace,
        }
        tools = (ROOT / "examples" / "kafka" / "tools.yaml").read_text()
        self._tools = tools.replace("apache/kafka:4.3.0", image)

    def paste(self, commands: str) -> str:
        """Run commands of the example's page."""
        text = commands.replace(
            "kubectl apply -f examples/kafka/tools.yaml",
            f"kubectl apply -f - <<'MANIFEST'\n{self._tools}\nMANIFEST",
        )
        return self._lab.paste(text, self._names)

    def run(self, script: str, *, check: bool = True) -> str:
        """Run a script in the pod with Kafka's tools."""
        return self._lab.kubectl("exec", "kafka-tools", "--", "sh", "-ec", script, check=check)

    def java(self, name: str, options: str, user: str = "app") -> str:
        """A command of Kafka's with the address of a broker."""
        lab = self._lab
        # The first one is that whose disk is lost.
        servers = ",".join(
            f"{lab.name}-broker-{n}.{lab.name}-brokers.{lab.namespace}.svc:9092"
            for n in reversed(range(BROKERS))
        )
        return (
            f"java -cp '/opt/kafka/libs/*' org.apache.kafka.tools.{name} "
            f"--bootstrap-server {servers} --command-config /tmp/{user}.properties {options}"
        )

    def until_ready(self) -> None:
        name = f"{self._lab.name}-broker"
        self._lab.until(
            "the brokers are ready",
            lambda: self._lab.get("statefulset", name)["status"].get("readyReplicas") == BROKERS,
        )

    def until_in_sync(self) -> None:
        """Wait until no partition is under-replicated, by the command of the page."""
        page = block("examples/kafka/README.md", "--under-replicated-partitions")
        command = page[page.index("kubectl exec") :]
        self._lab.until(
            "all replicas are in sync", lambda: not self.paste(command).strip(), IN_SYNC_S
        )


class Outcome(NamedTuple):
    """What the producer was told. longest_s: between two acknowledgements."""

    acknowledged: set[int]
    longest_s: float


class Producer:
    """Kafka's own verifiable producer, in the pod with the tools. It retries, idempotently."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka

    def start(self) -> None:
        more = "retries=2147483647\\nenable.idempotence=true\\n"
        command = self._kafka.java(
            "VerifiableProducer", f"--topic {TOPIC} --throughput {RATE} --acks -1", "load"
        )
        self._kafka.run(
            f"{{ cat /tmp/app.properties; printf '{more}'; }} > /tmp/load.properties\n"
            f"{command} > /tmp/load.out 2> /tmp/load.err &\n"
            "echo $! > /tmp/load.pid"
        )

    def count(self) -> int:
        found = self._kafka.run("grep -c producer_send_success /tmp/load.out || true", check=False)
        return int(found or 0)

    def stop(self) -> Outcome:
        # Nobody in that pod waits for the process, so its id lasts longer than it does.
        ended = "until grep -q shutdown_complete /tmp/load.out; do sleep 1; done"
        self._kafka.run(f"kill $(cat /tmp/load.pid); {ended}")
        acknowledged: set[int] = set()
        times: list[int] = []
        for line in self._kafka.run("cat /tmp/load.out").splitlines():
            said = json.loads(line)
            if said["name"] == "producer_send_success":
                acknowledged.add(int(said["value"]))
                times.append(said["timestamp"])
        pauses = (after - before for before, after in itertools.pairwise(times))
        return Outcome(acknowledged, max(pauses) / 1000)


def test_disks_of_both_kinds_are_lost_under_load(lab: Lab, kafka_image: str) -> None:
    kafka = Kafka(lab, kafka_image)
    began = time.monotonic()
    kafka.paste(block("examples/kafka/README.md", "helm install meta"))
    lab.until_ready(3)
    kafka.until_ready()
    figures.add("helm install with 3 brokers of Kafka", time.monotonic() - began)
    print(kafka.paste(block("examples/kafka/README.md", "AclCommand")))
    described = kafka.run(kafka.java("TopicCommand", f"--describe --topic {TOPIC}", "admin"))
    assert f"ReplicationFactor: {BROKERS}" in described, described
    producer = Producer(kafka)
    producer.start()
    lab.until("the producer is acknowledged", lambda: producer.count() > RATE)

    # The leading controller's disk is lost.
    leader = lab.leader
    before = lab.directories()[leader]
    began = time.monotonic()
    lab.lose_disk(leader)
    lab.until("another directory", lambda: lab.directories().get(leader, before) != before)
    lab.until_ready(3)
    figures.add("disk of a controller replaced, beside Kafka", time.monotonic() - began)
    print(kafka.run(kafka.java("TopicCommand", "--create --topic after-a-controller")))

    # A broker's.
    claim = "data-meta-broker-1"
    before = lab.get("pvc", claim)["metadata"]["uid"]
    began = time.monotonic()
    page = block("examples/kafka/README.md", "--under-replicated-partitions")
    kafka.paste(page[: page.index("kubectl exec")])
    lab.until(
        "an empty volume",
        lambda: lab.exists("pvc", claim) and lab.get("pvc", claim)["metadata"]["uid"] != before,
    )
    kafka.until_ready()
    kafka.until_in_sync()
    figures.add("disk of a broker replaced, replicas in sync", time.monotonic() - began)
    print(kafka.run(kafka.java("TopicCommand", "--create --topic after-a-broker")))

    # All brokers restart, as for renewed certificates, and a controller is added meanwhile.
    before_restart = lab.uids("pods")
    lab.scale(4)
    kafka.paste(block("examples/kafka/README.md", "rollout restart"))
    kafka.until_in_sync()
    lab.until_ready(4)
    names = [f"meta-broker-{ordinal}" for ordinal in range(BROKERS)]
    after_restart = lab.uids("pods")
    assert all(after_restart[name] != before_restart[name] for name in names)

    count = producer.count()
    lab.until("the producer is still acknowledged", lambda: producer.count() > count + RATE)
    outcome = producer.stop()
    options = f"--topic {TOPIC} --from-beginning --timeout-ms 20000"
    command = kafka.java("consumer.ConsoleConsumer", options)
    # The timeout is logged to the same stream.
    lines = kafka.run(command).splitlines()
    read = Counter(int(line) for line in lines if line.isdecimal())
    assert len(outcome.acknowledged) > 20 * RATE, len(outcome.acknowledged)
    assert outcome.acknowledged <= set(read), sorted(outcome.acknowledged - set(read))[:10]
    assert max(read.values()) == 1, read.most_common(3)
    assert outcome.longest_s < PAUSE_S_MAX, outcome.longest_s
    print(
        f"{len(outcome.acknowledged)} records acknowledged, none lost, none twice; "
        f"the longest pause was {outcome.longest_s:.1f} s"
    )
