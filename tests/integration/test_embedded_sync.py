"""Nodes and clients without asyncio."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import quorate
import quorate.sync

from tests.integration.embedded_support import (
    CLUSTER,
    KeyValues,
    Settings,
    settings,
    without_stalls,
)
from tests.processes import HOST, WAIT_S, environment, free_ports, until


class Blocking(KeyValues):
    """Blocks in apply until `may_apply`, and remembers the threads that called it."""

    def __init__(self) -> None:
        super().__init__()
        self.may_apply = threading.Event()
        self.threads: set[int] = set()
        self.node: quorate.sync.Node | None = None
        self.refused: list[str] = []

    def apply(self, batch: Sequence[quorate.Record]) -> None:
        self.threads.add(threading.get_ident())
        assert self.may_apply.wait(WAIT_S)
        super().apply(batch)

    def leadership_acquired(self, epoch: int) -> None:
        super().leadership_acquired(epoch)
        self.threads.add(threading.get_ident())
        assert self.node is not None
        self.node.append([(b"leader", b"%d" % epoch)])
        try:
            self.node.read_index()
        except quorate.MisuseError as error:
            self.refused.append(str(error))


@pytest.fixture
def alone(tmp_path: Path) -> Settings:
    (port,) = free_ports(1)
    alone = settings(tmp_path, 1, [port])
    quorate.format_storage(alone, CLUSTER, standalone=True)
    return alone


def test_a_state_machine_may_block_and_append(alone: Settings) -> None:
    machine = Blocking()
    node = machine.node = quorate.sync.Node(alone, machine)
    with node:
        last = [node.append([(b"a", b"%d" % number)]) for number in range(20)][-1]
        assert machine.offsets == [], "an append does not wait for the state machine"
        machine.may_apply.set()
        node.applied(last.base_offset)
        assert machine.values[b"a"] == b"19"
        index = node.read_index()
        assert index > last.base_offset
        assert machine.values[b"leader"] == b"%d" % node.leader.epoch
        assert node.leader.id == node.key.id == 1
        assert node.describe().is_leaders_view
    assert machine.refused == ["a method of the state machine would wait for itself"]
    assert len(machine.threads) == 1
    assert threading.get_ident() not in machine.threads
    assert [kind for kind, _, _ in machine.leaderships] == ["acquired", "lost"]
    with pytest.raises(quorate.MisuseError, match="the node is closed"):
        node.append([(b"a", b"late")])


def test_a_state_is_taken_in_the_thread_of_the_machine(tmp_path: Path) -> None:
    class Taken(KeyValues):
        def __init__(self) -> None:
            super().__init__()
            self.threads: set[int] = set()
            self.chunks: list[bytes] = []

        def apply(self, batch: Sequence[quorate.Record]) -> None:
            super().apply(batch)
            self.threads.add(threading.get_ident())

        def snapshot(self) -> list[bytes]:
            self.threads.add(threading.get_ident())
            return [chunk or b"" for item in self.values.items() for chunk in item]

        def restore(self, snapshot: quorate.StateSnapshot) -> None:
            self.chunks = list(snapshot.state)
            super().restore(snapshot)

    (port,) = free_ports(1)
    own = settings(
        tmp_path,
        1,
        [port],
        **{
            "metadata.log.max.record.bytes.between.snapshots": 1,
            "metadata.max.retention.bytes": 1,
        },
    )
    quorate.format_storage(own, CLUSTER, standalone=True, features={"application.version": 1})
    machine = Taken()
    with quorate.sync.Node(own, machine) as node:
        offset = node.append([(b"a", b"1")]).base_offset
        node.applied(offset)
        until(
            "a snapshot with the state",
            lambda: any(int(path.name[:20]) > offset for path in tmp_path.glob("*/*/*.checkpoint")),
        )
    assert len(machine.threads) == 1
    machine = Taken()
    with quorate.sync.Node(own, machine) as node:
        node.read_index()
    assert machine.chunks == [b"a", b"1"]


def test_threads_share_a_node_and_a_client(alone: Settings) -> None:
    machine = KeyValues()
    node = quorate.sync.Node(alone, machine)
    node.start()
    try:
        address = str(alone["listeners"]).removeprefix("CONTROLLER://")
        assert address.startswith(HOST)
        with quorate.sync.Client([address]) as client:
            threads = [
                threading.Thread(target=client.append_value, args=(b"%d" % number, b"a"))
                for number in range(8)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            last = client.append([(b"b", b"x"), (b"b", b"y")])
            assert client.read_index() > last.base_offset + 1
            read = list(client.read())
            assert sorted(r.value or b"" for r in read[:8]) == [b"%d" % n for n in range(8)]
            assert [r.offset for r in read[8:]] == [last.base_offset, last.base_offset + 1]
            assert next(iter(client.read(last.base_offset))).value == b"x"
            client.transfer_leadership(node.key)
            assert client.describe_quorum().is_leaders_view
        with pytest.raises(quorate.MisuseError, match="the client is closed"):
            client.append_value(b"late")
        node.read_index()
        assert machine.offsets == [record.offset for record in read]
    finally:
        node.stop()


def test_a_failure_reaches_the_program(alone: Settings) -> None:
    node = quorate.sync.Node(alone, KeyValues())
    node.start()
    node.append([(b"a", b"bad")])
    with pytest.raises(quorate.StateMachineError, match="ValueError: a bad value"):
        node.stopped()
    with pytest.raises(quorate.StateMachineError):
        node.append([(b"a", b"good")])
    with pytest.raises(quorate.StateMachineError):
        node.stop()
    with pytest.raises(quorate.MisuseError, match="once"):
        node.start()


def test_coroutine_functions_are_refused(alone: Settings) -> None:
    class Asynchronous(KeyValues):
        async def apply(self, batch: Sequence[quorate.Record]) -> None:  # type: ignore[override]
            raise AssertionError

    with pytest.raises(quorate.MisuseError, match="apply is a coroutine function"):
        quorate.sync.Node(alone, Asynchronous())


def test_results_that_nothing_awaits_are_refused(alone: Settings) -> None:
    class Deferring(KeyValues):
        def apply(self, batch: Sequence[quorate.Record]) -> None:
            return self._apply(batch)  # type: ignore[return-value]

        async def _apply(self, batch: Sequence[quorate.Record]) -> None:
            raise AssertionError

    node = quorate.sync.Node(alone, Deferring())
    node.start()
    node.append([(b"a", b"1")])
    with pytest.raises(quorate.StateMachineError, match="it returned a coroutine"):
        node.stopped()
    with pytest.raises(quorate.StateMachineError):
        node.stop()


def test_a_state_machine_that_exits_stops_the_node(alone: Settings) -> None:
    class Exiting(KeyValues):
        def apply(self, batch: Sequence[quorate.Record]) -> None:
            sys.exit(3)

    node = quorate.sync.Node(alone, Exiting())
    node.start()
    appended = node.append([(b"a", b"1")])
    with pytest.raises(quorate.StateMachineError, match="SystemExit: 3"):
        node.applied(appended.base_offset)
    with pytest.raises(quorate.StateMachineError):
        node.stop()


def test_a_state_machine_cannot_stop_its_node(alone: Settings) -> None:
    class Stopping(KeyValues):
        refused = ""

        def apply(self, batch: Sequence[quorate.Record]) -> None:
            try:
                node.stop()
            except quorate.MisuseError as error:
                self.refused = str(error)
            super().apply(batch)

    machine = Stopping()
    node = quorate.sync.Node(alone, machine)
    with node:
        node.applied(node.append([(b"a", b"1")]).base_offset)
        assert machine.refused == "a method of the state machine would wait for itself"
        assert node.leader.id == 1


def test_a_close_ends_the_calls_of_other_threads(alone: Settings) -> None:
    """Each of them ends with an error of the library, and a second close does nothing."""
    ended: list[Exception] = []

    def repeat(call: Callable[[], object]) -> None:
        try:
            while True:
                call()
        except (quorate.ClientError, quorate.MisuseError, quorate.NodeError) as error:
            ended.append(error)

    with quorate.sync.Node(alone, KeyValues()) as node:
        address = str(alone["listeners"]).removeprefix("CONTROLLER://")
        with quorate.sync.Client([address]) as client:
            calls = [
                lambda: client.append([(b"a", b"1")]),
                lambda: client.append_value(b"1"),
                client.read_index,
                lambda: list(client.read()),
                client.describe_quorum,
                node.read_index,
                lambda: node.append([(b"a", b"1")]),
                lambda: node.applied(1 << 40),
            ]
            threads = [threading.Thread(target=repeat, args=(call,)) for call in calls]
            for thread in threads:
                thread.start()
            time.sleep(0.3)
            client.close()
        node.stop()
        for thread in threads:
            thread.join(10)
    assert len(ended) == len(calls)


def test_a_forked_child_is_told_that_it_has_no_node(alone: Settings) -> None:
    with quorate.sync.Node(alone, KeyValues()) as node:
        if (child := os.fork()) == 0:
            refused = 0
            for call in (node.read_index, node.stop):
                try:
                    call()
                except quorate.MisuseError as error:
                    refused += "of another process" in str(error)
            os._exit(refused)
        for _ in range(100):
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                break
            time.sleep(0.1)
        else:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise AssertionError("the child hangs")
        assert os.waitstatus_to_exitcode(status) == 2
        node.append([(b"a", b"1")])


def test_an_interrupt_leaves_nothing_running(alone: Settings, tmp_path: Path) -> None:
    """Ctrl-C while the program waits: the node stops, and the directory is free again."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os, signal, sys, threading\n"
        "import quorate, quorate.sync\n"
        "from tests.integration.embedded_support import KeyValues\n"
        f"settings = { ({name: str(value) for name, value in alone.items()})!r}\n"
        f"settings['controller.quorum.bootstrap.servers'] = {alone['listeners']!r}[13:]\n"
        "try:\n"
        "    with quorate.sync.Node(settings, KeyValues()) as node:\n"
        "        node.append([(b'a', b'1')])\n"
        "        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "        node.applied(1_000)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
        "machine = KeyValues()\n"
        "with quorate.sync.Node(settings, machine) as node:\n"
        "    node.read_index()\n"
        "    print(machine.values)\n"
    )
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment() | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )
    assert done.stdout == "interrupted\n{b'a': b'1'}\n", done.stderr
    assert without_stalls(done.stderr) == ""
