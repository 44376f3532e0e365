"""Kafka's brokers and clients on controllers of Quorate, or on Kafka's own, while parts of it fail.

    python -m tests.kafka_soak --controllers quorate --minutes 60
    python -m tests.kafka_soak --controllers kafka --minutes 60 --seed 7
    python -m tests.kafka_soak --release 4.0.0 --minutes 15

Three controllers and three brokers. Clients of every kind run meanwhile (`Clients.java`):
idempotent and transactional producers, groups of both protocols, a share group, a streams
application, and changes of topics. The same seed gives the same events in the same order. At the
end every acknowledged record must be there once, and the logs of the controllers must keep the
simulation's invariants (`tests/logs/checks.py`). Exit status 1 if a record is lost or
duplicated, a client ended, or an invariant is violated. Needs Java 17, Maven and the shared folder.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tests.kafka import PEERS, fetch
from tests.kafka_soak.clusters import (
    BROKERS,
    CONTROLLERS,
    START_S,
    Brokers,
    Controllers,
    KafkaControllers,
    QuorateControllers,
)
from tests.logs.checks import check_logs
from tests.logs.files import read_log
from tests.processes import Dialog

TEXT_MAX = 1_000
HERE = Path(__file__).parent
CLIENTS_RELEASE = "4.3.0"
SETTLE_S = 20.0
"""Between two events, and before the first one."""
STEP_S = 5.0
STOP_S = 120.0
GRACE_S = 700.0
"""For what the clients do after the time is up: catch up, and read everything."""


class Events:
    """What happens to the cluster. counts: by kind. only: a part of the names of what happens."""

    def __init__(
        self, controllers: Controllers, brokers: Brokers, chance: random.Random, only: str
    ) -> None:
        self._controllers = controllers
        self._brokers = brokers
        self._chance = chance
        kinds: list[tuple[Callable[[], None], int]] = [
            (self.kill_leading_controller, 4),
            (self.kill_controller, 2),
            (self.kill_broker, 3),
            (self.stop_broker, 2),
            (self.restart_controllers, 1),
            (self.replace_disk, 1),
        ]
        self._kinds = [kind for kind in kinds if only in kind[0].__name__]
        if not self._kinds:
            sys.exit(f"--only {only}: no event has this in its name")
        self.counts: dict[str, int] = {}

    def next(self) -> str:
        """Let one event happen, and wait until all processes run again."""
        ((event, _),) = self._chance.choices(self._kinds, [weight for _, weight in self._kinds])
        event()
        name = event.__name__.replace("_", " ")
        self.counts[name] = self.counts.get(name, 0) + 1
        return name

    def kill_leading_controller(self) -> None:
        self._restart(self._controllers.leader(), kill=True)

    def kill_controller(self) -> None:
        self._restart(self._chance.choice(CONTROLLERS), kill=True)

    def restart_controllers(self) -> None:
        """One after the other, with SIGTERM."""
        for node_id in CONTROLLERS:
            self._restart(node_id, kill=False)

    def replace_disk(self) -> None:
        self._controllers.replace_disk(self._chance.choice(CONTROLLERS))

    def kill_broker(self) -> None:
        self._restart_broker(kill=True)

    def stop_broker(self) -> None:
        self._restart_broker(kill=False)

    def _restart(self, node_id: int, *, kill: bool) -> None:
        process = self._controllers.process(node_id)
        if kill:
            process.kill()
        else:
            process.stop(STOP_S)
        time.sleep(STEP_S)
        process.start()
        process.wait_listening(self._controllers.ports[node_id], timeout_s=START_S)
        time.sleep(STEP_S)

    def _restart_broker(self, *, kill: bool) -> None:
        broker_id = self._chance.choice(BROKERS)
        node = self._brokers.nodes[broker_id]
        if kill:
            node.kill()
        else:
            node.stop(STOP_S)
        time.sleep(STEP_S)
        node.start()
        self._brokers.wait(broker_id)


def clients_classes(folder: Path) -> str:
    """Compile the clients; the class path to run them with."""
    jars = PEERS / f"streams-{CLIENTS_RELEASE}"
    if not (jars / ".complete").exists():
        subprocess.run(
            [
                "mvn", "-q", "-B", "-f", HERE / "pom.xml", "dependency:copy-dependencies",
                f"-Dkafka.version={CLIENTS_RELEASE}", "-DincludeScope=runtime",
                f"-DoutputDirectory={jars}",
            ],
            check=True,
            stdout=sys.stderr,  # Maven writes escape codes, and stdout is for the report
        )  # fmt: skip
        (jars / ".complete").touch()
    source = HERE / "Clients.java"
    subprocess.run(["javac", "-d", folder, "-cp", f"{jars}/*", source], check=True)
    return f"{folder}:{jars}/*"


def run_clients(
    folder: Path, classes: str, brokers: Brokers, seconds: float, *, shares: bool
) -> Dialog:
    """Start the clients, which print their report; their log goes to `clients.log`.

    seconds: how long they produce; 0 until their stdin is closed.
    """
    clients = Dialog(
        "the clients", folder / "clients.log",
        "java", "-Xmx512m", "-XX:TieredStopAtLevel=1",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-Dorg.slf4j.simpleLogger.showDateTime=true", "-cp", classes, "Clients",
        brokers.addresses, int(seconds), "3", "share" if shares else "classic",
    )  # fmt: skip
    clients.start()
    return clients


def happen(
    events: Events, clients: Dialog, seconds: float, say: Callable[[str], None]
) -> Iterator[str]:
    """Let events happen until the time is up."""
    begun = time.monotonic()
    while time.monotonic() - begun < seconds - SETTLE_S and clients.is_alive:
        time.sleep(SETTLE_S)
        at = time.monotonic() - begun
        name = events.next()
        say(f"{at:6.0f} s  {name}, {time.monotonic() - begun - at:.0f} s")
        yield name


def table(report: dict[str, Any], title: str) -> Table:
    shown = Table("what", "figure", title=title)
    for name, value in report.items():
        if isinstance(value, dict):
            shown.add_row(name, ", ".join(f"{key} {each}" for key, each in value.items()))
        else:
            shown.add_row(name, str(value))
    return shown


def main(
    *,
    controllers: Annotated[str, typer.Option(help="quorate or kafka")] = "quorate",
    minutes: Annotated[float, typer.Option(min=1)] = 60.0,
    seed: Annotated[int, typer.Option(help="Of the events.")] = 1,
    release: Annotated[str, typer.Option(help="Of the brokers, and of Kafka's controllers.")] = (
        CLIENTS_RELEASE
    ),
    only: Annotated[str, typer.Option(help="A part of the names of events, such as broker.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON on stdout.")] = False,
) -> None:
    """Run it, and print what became of the records."""
    if controllers not in ("quorate", "kafka"):
        sys.exit(f"--controllers {controllers}: expected quorate or kafka")
    console = Console(stderr=as_json, soft_wrap=True, highlight=False)
    jars = PEERS / f"kafka-{release}"
    fetch(jars)
    folder = Path(tempfile.mkdtemp(prefix="kafka-soak-"))
    level = ".".join(release.split(".")[:2])
    console.print(f"{controllers}, Kafka {release}, {minutes:g} min, seed {seed}, in {folder}")
    classes = clients_classes(folder / "classes")
    with ExitStack() as stack:
        made: Controllers = (
            QuorateControllers(folder)
            if controllers == "quorate"
            else KafkaControllers(folder, jars)
        )
        stack.callback(made.kill)
        made.start(level)
        brokers = Brokers(folder, jars, made)
        stack.callback(brokers.kill)
        brokers.start()
        shares = level >= "4.2"
        clients = run_clients(folder, classes, brokers, minutes * 60, shares=shares)
        stack.callback(clients.kill)
        events = Events(made, brokers, random.Random(seed), only)
        try:
            for _ in happen(events, clients, minutes * 60, console.print):
                pass
        except (AssertionError, subprocess.TimeoutExpired) as error:
            sys.exit(f"a process did not start or stop: {error}; all logs are in {folder}")
        try:
            out = clients.finish(GRACE_S)
        except subprocess.TimeoutExpired:
            sys.exit(f"the clients did not end; their log is {folder}/clients.log")
        made.kill()
        logs = check_logs([read_log(made.directory(node_id)) for node_id in made.ids])
    lines = out.strip().splitlines()
    if not lines:
        sys.exit(f"the clients ended without a report; their log is {folder}/clients.log")
    violations = [str(each)[:TEXT_MAX] for each in logs.violations]
    report = {
        "events": events.counts,
        "elections": len(logs.terms),
        "batches in several logs": logs.compared,
        "violated invariants": violations,
        **json.loads(lines[-1]),
    }
    console.print(table(report, f"{controllers}, Kafka {release}, {minutes:g} min, seed {seed}"))
    if as_json:
        print(json.dumps(report, indent=2))
    if clients.status or violations:
        console.print(f"the processes' folders are left in {folder}")
        raise typer.Exit(1)
    shutil.rmtree(folder)


if __name__ == "__main__":
    typer.run(main)
