"""How long Kafka's brokers are without a controller, or a partition without a leader: both kinds.

    python -m tests.kafka_soak.failover --kills 10

Two clusters run side by side, each with three controllers and three brokers: one on controllers
of Quorate, one on Kafka's own. In turns, each loses its leading controller (kill -9): how long does
it take until a topic is created that was asked for after the kill, by four clients that ask without
a pause? Then each loses a broker: how long does it take until another broker names a new leader of
every partition? Needs Java 17, Maven and the shared folder.
"""

from __future__ import annotations

import json
import random
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from quorate.common.error_codes import ErrorCode
from rich.console import Console
from rich.table import Table

from tests.integration.support import HOST
from tests.kafka import KAFKA_4_3, fetch
from tests.kafka_soak.clusters import Brokers, Controllers, KafkaControllers, QuorateControllers
from tests.migration.client import KafkaClient

CLIENTS = 4
WAIT_S = 60.0
REST_S = 10.0
"""Between a restart and the next kill."""
PARTITIONS = 12


class Cluster:
    """Controllers and brokers, and a client of the brokers."""

    def __init__(self, name: str, folder: Path, stack: ExitStack) -> None:
        self.name = name
        folder.mkdir()
        self.controllers: Controllers = (
            QuorateControllers(folder) if name == "Quorate" else KafkaControllers(folder, KAFKA_4_3)
        )
        stack.callback(self.controllers.kill)
        self.controllers.start("4.3")
        self.brokers = Brokers(folder, KAFKA_4_3, self.controllers)
        stack.callback(self.brokers.kill)
        self.brokers.start()
        self.addresses = [f"{HOST}:{port}" for port in self.brokers.ports.values()]
        self.client = KafkaClient(self.addresses)
        self._topics = 0
        self._guard = threading.Lock()
        self._wait(lambda: self.create() == 0)
        self._wait(self._has_led)

    def _has_led(self) -> bool:
        found = self.client.create_topic(self.addresses[0], "led", PARTITIONS, 3)
        return found in (0, ErrorCode.TOPIC_ALREADY_EXISTS)

    def _wait(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + WAIT_S
        while True:
            try:
                if condition():
                    return
            except OSError:
                pass
            assert time.monotonic() < end, f"{self.name}: not within {WAIT_S} s"
            time.sleep(0.05)

    def create(self) -> int:
        """Create a topic; the error's number."""
        with self._guard:
            self._topics += 1
            number = self._topics
        address = self.addresses[number % len(self.addresses)]
        return self.client.create_topic(address, f"made-{number}")

    def lose_controller(self) -> float:
        """Seconds from the kill of the leading controller to the first topic asked for after it."""
        leader = self.controllers.leader()
        done = threading.Event()
        killed_s = time.monotonic()
        process = self.controllers.process(leader)
        process.kill()

        def ask() -> None:
            while not done.is_set():
                try:
                    if self.create() == 0:
                        done.set()
                except OSError:
                    time.sleep(0.01)

        threads = [threading.Thread(target=ask) for _ in range(CLIENTS)]
        for each in threads:
            each.start()
        assert done.wait(WAIT_S), f"{self.name}: no topic within {WAIT_S} s"
        seconds = time.monotonic() - killed_s
        for each in threads:
            each.join()
        process.start()
        process.wait_listening(self.controllers.ports[leader], timeout_s=WAIT_S)
        time.sleep(REST_S)
        return seconds

    def lose_broker(self, broker_id: int) -> float:
        """Seconds from the kill of a broker until another one names other leaders only."""
        (asked, *_) = (
            f"{HOST}:{port}" for each, port in self.brokers.ports.items() if each != broker_id
        )
        killed_s = time.monotonic()
        self.brokers.nodes[broker_id].kill()

        def is_led() -> bool:
            found = self.client.topics(asked)["led"].values()
            return all(each.leader_id not in (broker_id, -1) for each in found)

        self._wait(is_led)
        seconds = time.monotonic() - killed_s
        self.brokers.nodes[broker_id].start()
        self.brokers.wait(broker_id)
        time.sleep(REST_S)
        return seconds


def summary(seconds: list[float]) -> str:
    found = sorted(seconds)
    return f"{found[0]:.2f} / {statistics.median(found):.2f} / {found[-1]:.2f}"


def main(
    kills: Annotated[int, typer.Option(min=1, help="Of each kind, per cluster.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="All times as JSON on stdout.")] = False,
) -> None:
    """Measure both, in turns."""
    console = Console(stderr=as_json, soft_wrap=True, highlight=False)
    fetch(KAFKA_4_3)
    folder = Path(tempfile.mkdtemp(prefix="kafka-failover-"))
    chance = random.Random(1)
    times: dict[str, dict[str, list[float]]] = {}
    with ExitStack() as stack:
        clusters = [Cluster(name, folder / name, stack) for name in ("Quorate", "Kafka")]
        for number in range(kills):
            broker_id = chance.choice(list(clusters[0].brokers.ports))
            for cluster in clusters:
                found = times.setdefault(cluster.name, {"controller": [], "broker": []})
                found["controller"].append(cluster.lose_controller())
                found["broker"].append(cluster.lose_broker(broker_id))
                console.print(
                    f"{number + 1:3d} {cluster.name:8}"
                    f"  controller {found['controller'][-1]:.2f} s"
                    f"  broker {found['broker'][-1]:.2f} s"
                )
    shown = Table("controllers", "topic created, s", "partitions led, s")
    for name, found in times.items():
        shown.add_row(name, *map(summary, found.values()))
    shown.caption = f"minimum / median / maximum of {kills} kills"
    console.print(shown)
    if as_json:
        print(json.dumps(times))
    shutil.rmtree(folder)


if __name__ == "__main__":
    typer.run(main)
