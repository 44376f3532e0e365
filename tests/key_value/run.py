"""One run: clients and faults for a while, then the end of all faults, and the verdict."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.key_value.clients import KEYS, Client, Histories
from tests.key_value.faults import Faults
from tests.key_value.namespaces import Namespaces
from tests.key_value.stores import NODES, STORES, Stores
from tests.key_value.verdict import Report, errors_of, judge, longest_gap

CLIENTS = 6
SETTLE_S = 4.0
"""Between the recovery from a fault and the next fault."""
RECOVERY_S = 60.0
EQUAL_S = 30.0
Say = Callable[[str], None]


class Run:
    """A run of one kind of stores in a folder. namespaces: None for a run without partitions."""

    def __init__(
        self,
        store: str,
        folder: Path,
        namespaces: Namespaces | None,
        *,
        seconds: float,
        seed: int,
        local_reads: bool,
        say: Say,
    ) -> None:
        self.stores: Stores = STORES[store](folder, namespaces)
        self.histories = Histories()
        self.faults = Faults(self.stores, seed)
        self.failures: list[str] = []
        self._seconds = seconds
        self._seed = seed
        self._reads = "peek" if local_reads else "get"
        self._say = say
        self._stopped = threading.Event()

    def run(self) -> Report:
        """Run it; no process is left."""
        with ExitStack() as stack:
            stack.callback(self.stores.kill)
            self.stores.start()
            begun = time.monotonic()
            clients = [self._client(number) for number in range(1, CLIENTS + 1)]
            for client in clients:
                client.start()
            try:
                self._happen(begun)
            except TimeoutError as error:
                self.failures.append(str(error))
                self.stores.recover()
            ended = time.monotonic()
            self._stopped.set()
            for client in clients:
                client.join()
            differing = self._compare()
        return self._report(ended - begun, differing)

    def _client(self, number: int, get_command: str | None = None) -> Client:
        return Client(
            number, NODES, self.stores.connect, self.histories,
            seed=self._seed, stopped=self._stopped, get_command=get_command or self._reads,
        )  # fmt: skip

    def _happen(self, begun: float) -> None:
        """Let faults happen until the time is up. TimeoutError if the store does not recover."""
        time.sleep(SETTLE_S)
        while (at := time.monotonic() - begun) < self._seconds:
            name = self.faults.next()
            lasted = time.monotonic() - begun - at
            for node in NODES:
                self.stores.wait(node, RECOVERY_S)
            recovered = time.monotonic() - begun - at - lasted
            self._say(f"{at:6.1f} s  {name}, {lasted:.1f} s, all serve after {recovered:.1f} s")
            time.sleep(SETTLE_S)

    def _compare(self) -> list[str]:
        """Read every key at every node, with the reads of the run, until all say the same."""
        reader = self._client(CLIENTS + 1, "get")
        deadline = time.monotonic() + EQUAL_S
        while True:
            found = []
            for node in NODES:
                try:
                    connection = self.stores.connect(node)
                except OSError:
                    break
                before = len(self.histories.operations)
                if all(reader.get(node, connection, key) for key in KEYS):
                    found.append([each.value for each in self.histories.operations[before:]])
                connection.close()
            if len(found) == len(NODES) and all(each == found[0] for each in found):
                return []
            if time.monotonic() > deadline:
                return [f"NODES_DIFFER: after {EQUAL_S:g} s without faults they say {found}"]
            time.sleep(1.0)

    def _report(self, seconds: float, differing: list[str]) -> Report:
        histories = self.histories
        violations, in_log, segments = judge(self.stores, histories)
        gap_s, gap_fault = longest_gap(histories.acknowledged_s, self.faults.begun)
        restored = [each for each in segments if each.is_restored]
        return Report(
            store=self.stores.name,
            version=self.stores.version,
            seed=self._seed,
            seconds=round(seconds, 1),
            partitions=self.stores.namespaces is not None,
            reads="local" if self._reads == "peek" else "linearizable",
            faults=dict(self.faults.counts),
            puts=histories.log.begun_count,
            acknowledged=histories.log.acknowledged_count,
            refused=len(histories.refused),
            unknown=len(histories.unknown),
            unknown_in_log=len(histories.unknown.keys() & in_log),
            errors=errors_of(histories, in_log),
            gets=sum(not each.is_put for each in histories.operations),
            failed_gets=dict(histories.failed_gets),
            longest_gap_s=round(gap_s, 2),
            longest_gap_fault=gap_fault,
            restored=len(restored),
            restored_running=sum(not each.is_first for each in restored),
            alarms=sum(each.said().count(" CRITICAL ") for each in self.stores.processes.values()),
            violations=violations + differing,
            failures=self.failures,
        )
