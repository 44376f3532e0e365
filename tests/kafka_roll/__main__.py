"""Roll a quorum from Kafka's controllers to Quorate's and back, again and again, under load.

    python -m tests.kafka_roll --rounds 10

Three brokers and clients of every kind (`tests.kafka_soak`) run on three controllers of Kafka. One
controller after the other is replaced by one of Quorate, with AddVoter and RemoveVoter, and then
the other way round. Meanwhile leaders of either kind are killed (kill -9). At the end every
acknowledged record must be there once, the logs of all six controllers must be byte-identical and
keep the invariants of the simulation (`tests/logs/checks.py`), and the audit of their
directories must find nothing. Each election must have a cause: the first one, or a leader that was
killed or removed. The voters must have changed as they were asked to, and not otherwise.
Needs Java 17, Maven and the shared folder.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from quorate.raft.types import ReplicaKey
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.integration.support import QUORATE
from tests.kafka import PEERS, fetch
from tests.kafka_roll.accounts import ADDED, REMOVED, Change, Kill, judge
from tests.kafka_roll.controllers import KAFKAS, QUORATES, STOP_S, MixedControllers
from tests.kafka_soak.__main__ import GRACE_S, clients_classes, run_clients, table
from tests.kafka_soak.clusters import Brokers

RELEASE = "4.3.0"
KILL_SHARE = 0.5
"""Of the changes of the voters during which the leader is killed."""
DELAY_S = 6.0
DOWN_S = 3.0
SETTLE_S = 3.0
AUDIT_S = 600.0


class Roll:
    """Replaces voters. kills: of leaders. changes: of the voters, as they were acknowledged."""

    def __init__(
        self, controllers: MixedControllers, chance: random.Random, progress: Progress
    ) -> None:
        self.controllers = controllers
        self.kills: list[Kill] = []
        self.changes: list[Change] = []
        self._chance = chance
        self._progress = progress

    def replace(self, old: int, new: int) -> None:
        """Start a controller, make it a voter in place of another one, and stop that one."""
        begun = time.monotonic()
        self.controllers.start_observer(new)
        with self._leader_killed():
            self.controllers.add(new)
            self.changes.append((ADDED, self._key(new)))
        with self._leader_killed():
            self.controllers.remove(old, self.controllers.directory_id(old))
            self.changes.append((REMOVED, self._key(old)))
        time.sleep(SETTLE_S)
        self.controllers.process(old).stop(STOP_S)
        took = time.monotonic() - begun
        self._progress.console.print(f"{old} -> {new}: {took:.0f} s, kills {len(self.kills)}")

    def _key(self, node_id: int) -> ReplicaKey:
        return ReplicaKey(node_id, self.controllers.directory_id(node_id))

    @contextmanager
    def _leader_killed(self) -> Iterator[None]:
        """Kill the leader during what happens inside, or not; it runs again at the end."""
        if self._chance.random() >= KILL_SHARE:
            yield
            return
        errors: list[BaseException] = []
        killer = threading.Thread(
            target=self._kill, args=(self._chance.uniform(0, DELAY_S), errors), name="killer"
        )
        killer.start()
        try:
            yield
        finally:
            killer.join()
        if errors:
            raise errors[0]

    def _kill(self, delay_s: float, errors: list[BaseException]) -> None:
        try:
            time.sleep(delay_s)
            leader = self.controllers.leader()
            process = self.controllers.process(leader)
            began_ms = now_ms()
            process.kill()
            self.kills.append(Kill(leader, began_ms, now_ms()))
            time.sleep(DOWN_S)
            process.start()
            self.controllers.wait(leader)
        except BaseException as error:
            errors.append(error)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def audit(controllers: MixedControllers) -> tuple[str, list[str]]:
    """The last line that `quorate pipeline audit` says of all directories, and what is wrong."""
    directories = [str(controllers.directory(node)) for node in controllers.ids]
    done = subprocess.run(
        [sys.executable, *QUORATE, "pipeline", "audit", *directories],
        capture_output=True, text=True, timeout=AUDIT_S, check=False,
    )  # fmt: skip
    faults = []
    if done.returncode != 0:
        faults.append(f"the audit ended with status {done.returncode}: {done.stdout}{done.stderr}")
    return "".join(done.stdout.strip().splitlines()[-1:]), faults


def catch_up_and_stop(controllers: MixedControllers) -> int:
    """Start the controllers that do not run, as observers, and stop all when they have the log.

    The offset that all of them have reached.
    """
    for node in controllers.ids:
        if not controllers.process(node).is_alive:
            controllers.start_observer(node)
    reached = controllers.catch_up()
    leader = controllers.leader()
    for node in (*(each for each in controllers.ids if each != leader), leader):
        controllers.process(node).kill()
    return reached


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Of a roll there and back.")] = 10,
    seed: Annotated[int, typer.Option(help="Of the kills.")] = 1,
    level: Annotated[str, typer.Option(help="The release of metadata.version.")] = "4.3",
    static: Annotated[
        bool, typer.Option("--static", help="Begin with static voters, at kraft.version 0.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON on stdout.")] = False,
) -> None:
    """Roll, and print what became of the records, the logs and the leaders."""
    console = Console(stderr=as_json, soft_wrap=True, highlight=False)
    jars = PEERS / f"kafka-{RELEASE}"
    fetch(jars)
    folder = Path(tempfile.mkdtemp(prefix="kafka-roll-"))
    title = f"metadata.version {level}, {rounds} rounds, seed {seed}" + ", static" * static
    console.print(f"{title}, in {folder}")
    classes = clients_classes(folder / "classes")
    bar = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with ExitStack() as stack, Progress(*bar, console=console) as progress:
        controllers = MixedControllers(folder, jars, static=static)
        stack.callback(controllers.kill)
        controllers.start(level)
        brokers = Brokers(folder, jars, controllers)
        stack.callback(brokers.kill)
        if static:
            controllers.make_static(brokers.nodes.values())
        brokers.start()
        shares = level >= "4.2"
        clients = run_clients(folder, classes, brokers, 0, shares=shares)
        stack.callback(clients.kill)
        roll = Roll(controllers, random.Random(seed), progress)
        out, reached, faults = "{}", 0, []
        try:
            if static:
                make_dynamic(controllers, brokers)
            task = progress.add_task("replaced voters", total=rounds * 6)
            for _ in range(rounds):
                for olds, news in ((KAFKAS, QUORATES), (QUORATES, KAFKAS)):
                    for old, new in zip(olds, news, strict=True):
                        roll.replace(old, new)
                        progress.advance(task)
            # They stop producing and check what they read.
            out = clients.finish(GRACE_S)
            brokers.kill()
            reached = catch_up_and_stop(controllers)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            faults = [f"the roll was cut off: {error}"]
    findings = judge(controllers, roll.kills, roll.changes, reached)
    said, wrong = audit(controllers)
    faults += [*findings.faults, *wrong]
    report: dict[str, Any] = {
        **findings.figures,
        "faults": len(faults),
        "audit": said,
        **json.loads(out.strip().splitlines()[-1]),
    }
    shown = Table(*findings.terms[0], title="elections")
    for each in findings.terms:
        shown.add_row(*map(str, each.values()))
    console.print(shown)
    console.print(table(report, title))
    for fault in faults:
        console.print(fault, markup=False)
    if as_json:
        print(json.dumps({**report, "faults": faults, "terms": findings.terms}, indent=2))
    if faults or clients.status:
        console.print(f"the processes' folders are left in {folder}")
        raise typer.Exit(1)
    shutil.rmtree(folder)


def make_dynamic(controllers: MixedControllers, brokers: Brokers) -> None:
    """Upgrade kraft.version, and restart one broker after the other with bootstrap servers."""
    controllers.upgrade()
    controllers.make_dynamic(brokers.nodes.values())
    for broker_id, node in brokers.nodes.items():
        node.stop(STOP_S)
        node.start()
        brokers.wait(broker_id)


if __name__ == "__main__":
    typer.run(main)
