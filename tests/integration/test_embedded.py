"""Voters within a program: three nodes in one process, over gRPC, each with a state machine."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import logging
import signal
from collections.abc import Coroutine, Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
import quorate

from tests.certificates import make_authority, make_certificate, needs_openssl
from tests.integration.embedded_support import (
    CLUSTER,
    SOON_S,
    KeyValues,
    Trio,
    initial_controllers,
    settings,
    until,
)
from tests.processes import HOST, free_ports


def has_snapshot(folder: Path, node_id: int) -> bool:
    names = [path.name for path in folder.glob(f"node-{node_id}/*/*.checkpoint")]
    return any(int(name.partition("-")[0]) > 0 for name in names)


async def test_every_node_appends_and_reads_what_was_committed(tmp_path: Path) -> None:
    trio = Trio(tmp_path)
    async with trio.running() as nodes:
        leader = await trio.leader()
        assert nodes[leader].leader.epoch == trio.machines[leader].leaderships[-1][1]
        for number, (node, machine) in enumerate(zip(nodes, trio.machines, strict=True)):
            result = await node.append([(b"a", b"%d" % number), (b"b", b"%d" % number)])
            assert result.epoch == node.leader.epoch
            for reader, state in zip(nodes, trio.machines, strict=True):
                index = await reader.read_index()
                assert index > result.base_offset + 1
                assert state.values == {b"a": b"%d" % number, b"b": b"%d" % number}
            await node.applied(result.base_offset + 1)
            assert machine.offsets[-2:] == [result.base_offset, result.base_offset + 1]
        assert len({tuple(machine.offsets) for machine in trio.machines}) == 1
        described = await nodes[(leader + 1) % 3].describe()
        assert described.is_leaders_view
        assert {voter.replica for voter in described.response.voters} == {n.key for n in nodes}
        with pytest.raises(quorate.MisuseError, match="have a key"):
            await nodes[0].append([(None, b"metadata")])
    for machine in trio.machines:
        kinds = [kind for kind, _, _ in machine.leaderships]
        assert kinds in ([], ["acquired", "lost"] * (len(kinds) // 2)), "all of them ended"
    with pytest.raises(quorate.NodeError, match="has stopped"):
        await nodes[0].append([(b"a", b"too late")])


async def transfer(trio: Trio, position: int) -> None:
    """Repeated until the node leads: one that stalls is not waited for, or another one wins."""
    target = trio.nodes[position]
    async with asyncio.timeout(SOON_S):
        while await trio.leader() != position:
            with contextlib.suppress(quorate.ClientError):
                await target.client.transfer_leadership(target.key)


async def test_the_leaderships_of_a_transfer_are_apart(tmp_path: Path) -> None:
    """Appends go on, so every leadership has records before it and after it."""
    trio = Trio(tmp_path)
    async with trio.running() as nodes:
        old = await trio.leader()
        is_over = False

        async def keep_appending(node: quorate.Node) -> int:
            for count in itertools.count():
                if is_over:
                    return count
                # The transfer may interrupt an append.
                with contextlib.suppress(quorate.OutcomeUnknownError):
                    await node.append([(b"key", b"%d" % count)])
            raise AssertionError

        appending = [asyncio.create_task(keep_appending(node)) for node in nodes]
        for _ in range(2):
            new = (old + 1) % 3
            await asyncio.sleep(0.1)
            await transfer(trio, new)
            old = new
        is_over = True
        assert all(count > 0 for count in await asyncio.gather(*appending))
        for node in nodes:
            await node.read_index()
        offsets = trio.machines[old].offsets
        assert all(machine.offsets == offsets for machine in trio.machines)
        assert len(set(offsets)) == len(offsets)
    terms = []
    for machine in trio.machines:
        for acquired, lost in zip(machine.leaderships[::2], machine.leaderships[1::2], strict=True):
            assert (acquired[0], lost[0]) == ("acquired", "lost")
            assert acquired[1] == lost[1]
            terms.append((acquired[1], acquired[2]))
    terms.sort()
    assert len(terms) == len({epoch for epoch, _ in terms}) >= 3
    befores = [before for _, before in terms]
    assert befores == sorted(befores), "a later epoch begins after the records of earlier ones"


async def test_a_restart_restores_the_state(tmp_path: Path) -> None:
    trio = Trio(
        tmp_path,
        **{
            "metadata.log.max.record.bytes.between.snapshots": 1,
            "metadata.max.retention.bytes": 1,
        },
    )
    async with trio.running() as nodes:
        for number in range(5):
            await nodes[0].append([(b"%d" % number, b"value")])
        await until("snapshots", lambda: all(has_snapshot(tmp_path, each) for each in (1, 2, 3)))
        last = await nodes[0].append([(b"last", b"value")])
        await nodes[1].applied(last.base_offset)
        before = trio.machines[1]
    async with trio.running() as nodes:
        await nodes[1].read_index()
        after = trio.machines[1]
        assert after.values == before.values
        assert after.offsets == before.offsets
        assert after.restored is not None
        result = await nodes[2].append([(b"last", b"another")])
        await nodes[1].applied(result.base_offset)
        assert after.values[b"last"] == b"another"


async def test_nodes_that_lack_the_beginning_of_the_log_get_a_snapshot(tmp_path: Path) -> None:
    """A new node, and one that was down while the log went on."""
    ports = free_ports(2)
    often = {
        "cluster.id": CLUSTER,
        "metadata.log.max.record.bytes.between.snapshots": 1,
        "metadata.max.retention.bytes": 1,
    }
    first = settings(tmp_path, 1, ports, **often)
    second = settings(tmp_path, 2, ports, **often, **{"quorate.unformatted.format": True})
    quorate.format_storage(first, CLUSTER, standalone=True)
    state = KeyValues()
    async with quorate.Node(first, state) as one:

        async def append_until_the_log_starts_later() -> None:
            last = await one.append([(b"a", b"1"), (b"b", b"2")])
            async with asyncio.timeout(20):
                while True:
                    last = await one.append([(b"n", b"%d" % last.base_offset)])
                    status = await one.client.node_status(f"{HOST}:{ports[0]}")
                    if status.log_start_offset > last.base_offset - 5:
                        return
                    await asyncio.sleep(0.1)

        for _ in range(2):
            await append_until_the_log_starts_later()
            machine = KeyValues()
            async with quorate.Node(second, machine) as two:
                index = await two.read_index()
                assert machine.restored is not None
                assert index >= machine.restored > 0
                await one.applied(index - 1)
                assert machine.values == state.values
                assert machine.offsets == state.offsets


async def test_a_state_machine_that_raises_stops_its_node_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trio = Trio(tmp_path)
    ports = free_ports(1)
    lone = settings(tmp_path / "lone", 1, ports)
    quorate.format_storage(lone, CLUSTER, standalone=True)
    bad = -1

    async def run() -> None:
        nonlocal bad
        async with quorate.Node(lone, KeyValues()) as node:
            await node.append([(b"a", b"good")])
            bad = (await node.append([(b"a", b"bad")])).base_offset
            with pytest.raises(quorate.StateMachineError):
                await node.applied(bad)
            with pytest.raises(quorate.StateMachineError):
                await node.stopped()
            with pytest.raises(quorate.StateMachineError):
                await node.append([(b"a", b"good")])

    with pytest.raises(quorate.StateMachineError) as caught:
        await run()
    assert str(caught.value) == (
        f"the state machine failed while it applied the batch at offset {bad}: "
        "ValueError: a bad value"
    )
    assert isinstance(caught.value.__cause__, ValueError)
    (logged,) = (r for r in caplog.records if r.name == "quorate.embedded.runner")
    assert logged.levelno == logging.ERROR
    assert logged.exc_info is not None, "the traceback of the state machine"
    assert caplog.text.count(f"stopping after a failure: {caught.value}") == 1
    async with trio.running() as nodes:
        await nodes[0].append([(b"a", b"good")])


async def test_a_node_is_formatted_joins_and_is_removed(tmp_path: Path) -> None:
    ports = free_ports(2)
    first, second = (
        settings(
            tmp_path,
            each,
            ports,
            **{
                "cluster.id": CLUSTER,
                "quorate.unformatted.format": each == 2,
                "controller.quorum.auto.join.enable": each == 2,
            },
        )
        for each in (1, 2)
    )
    with pytest.raises(quorate.NodeError, match="not formatted"):
        async with quorate.Node(first, KeyValues()):
            pass
    quorate.format_storage(first, CLUSTER, standalone=True)
    machine = KeyValues()
    async with quorate.Node(first, KeyValues()) as one, quorate.Node(second, machine) as two:
        await one.append([(b"a", b"1")])
        voters = {one.key, two.key}

        async def are_voters(wanted: set[quorate.ReplicaKey]) -> None:
            async with asyncio.timeout(20):
                while {  # noqa: ASYNC110 - another node changes it
                    voter.replica for voter in (await one.describe()).response.voters
                } != wanted:
                    await asyncio.sleep(0.05)

        await are_voters(voters)
        await two.read_index()
        assert machine.values == {b"a": b"1"}
        await one.client.remove_voter(two.key)
        await are_voters({one.key})
        result = await two.append([(b"a", b"2")])
        await two.applied(result.base_offset)
        assert machine.values == {b"a": b"2"}, "it follows as an observer"


async def test_a_start_can_be_given_up(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    wanted = {"quorate.unformatted.wait": True}
    waiting = quorate.Node(settings(tmp_path, 1, [port], **wanted), KeyValues())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(waiting.__aenter__(), 0.3)
    alone = settings(tmp_path, 1, [port])
    quorate.format_storage(alone, CLUSTER, standalone=True)
    async with quorate.Node(alone, KeyValues()) as node:
        await node.append([(b"a", b"1")])


async def test_an_exit_that_is_cancelled_stops_the_node(tmp_path: Path) -> None:
    """Whatever the exit awaits when it is cancelled, the directory is free afterwards."""
    (port,) = free_ports(1)
    alone = settings(tmp_path, 1, [port])
    quorate.format_storage(alone, CLUSTER, standalone=True)
    for awaits in range(1, 6):
        node = quorate.Node(alone, KeyValues())
        await node.__aenter__()
        await node.append([(b"a", b"1")])
        leaving = asyncio.create_task(node.__aexit__(None, None, None))
        for _ in range(awaits):
            await asyncio.sleep(0)
        leaving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await leaving
        async with asyncio.timeout(5):
            await node.stopped()


class Late:
    """Awaits a coroutine, but goes on with it half a second later each time."""

    def __init__(self, work: Coroutine[Any, Any, object]) -> None:
        self._steps = work.__await__()

    def __await__(self) -> Generator[Any, None, None]:
        for waits_for in self._steps:
            yield waits_for
            yield from asyncio.sleep(0.5).__await__()


async def test_a_state_machine_appends_before_the_program_is_in_the_block(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    alone = settings(tmp_path, 1, [port], **{"controller.quorum.election.timeout.ms": 50})
    quorate.format_storage(alone, CLUSTER, standalone=True)

    class Appending(KeyValues):
        async def leadership_acquired(self, epoch: int) -> None:  # type: ignore[override]
            await node.append([(b"leader", b"%d" % epoch)])

    machine = Appending()
    node = quorate.Node(alone, machine)
    await Late(node.__aenter__())
    try:
        await until("it appended", lambda: b"leader" in machine.values)
    finally:
        await node.__aexit__(None, None, None)


async def test_a_stopping_node_refuses_the_appends_of_its_state_machine(tmp_path: Path) -> None:
    """They would be retried until their timeout, although the client is closed."""
    (port,) = free_ports(1)
    alone = settings(tmp_path, 1, [port])
    quorate.format_storage(alone, CLUSTER, standalone=True)

    class Appending(KeyValues):
        refused = ""
        leader: int | None = None

        async def leadership_lost(self, epoch: int) -> None:  # type: ignore[override]
            super().leadership_lost(epoch)
            self.leader = node.leader.id
            try:
                await node.append([(b"lost", b"%d" % epoch)])
            except quorate.NodeError as error:
                self.refused = str(error)

    machine = Appending()
    node = quorate.Node(alone, machine)
    async with asyncio.timeout(8), node:
        await node.append([(b"a", b"1")])
        await node.read_index()
    assert machine.refused == "the node is stopping"
    assert [kind for kind, _, _ in machine.leaderships] == ["acquired", "lost"]


async def test_an_error_of_the_program_hides_no_other_and_is_not_hidden(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (port,) = free_ports(1)
    alone = settings(tmp_path, 1, [port])
    quorate.format_storage(alone, CLUSTER, standalone=True)

    async def run() -> None:
        async with quorate.Node(alone, KeyValues()) as node:
            result = await node.append([(b"a", b"bad")])
            with contextlib.suppress(quorate.NodeError):
                await node.applied(result.base_offset)
            raise KeyError

    with pytest.raises(KeyError):
        await run()
    gc.collect()
    assert "never retrieved" not in caplog.text
    assert "the state machine failed" in caplog.text


async def test_a_node_changes_nothing_of_the_process(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    alone = settings(tmp_path, 1, [port])
    quorate.format_storage(alone, CLUSTER, standalone=True)
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    logging_before = (logging.root.level, list(logging.root.handlers))
    async with quorate.Node(alone, KeyValues()) as node:
        await node.append([(b"a", b"1")])
        assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)] == handlers
        assert (logging.root.level, list(logging.root.handlers)) == logging_before


async def test_a_node_that_cannot_start_says_why(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    alone = settings(tmp_path, 1, [port])
    quorate.format_storage(alone, CLUSTER, standalone=True)
    async with quorate.Node(alone, KeyValues()) as running:
        with pytest.raises(quorate.NodeError, match="this process holds"):
            async with quorate.Node(alone, KeyValues()):
                pass
        with pytest.raises(quorate.MisuseError, match="once"):
            await running.__aenter__()
        await running.append([(b"a", b"1")])
    with pytest.raises(quorate.ConfigError, match=r"node\.id"):
        quorate.Node({key: alone[key] for key in alone if key != "node.id"}, KeyValues())
    lock = tmp_path / "node-1" / ".lock"
    lock.unlink()
    lock.mkdir()
    with pytest.raises(quorate.NodeError, match="Is a directory"):
        async with quorate.Node(alone, KeyValues()):
            pass
    with pytest.raises(quorate.FormatError, match="already formatted"):
        quorate.format_storage(alone, CLUSTER, standalone=True)


async def test_a_minority_appends_and_reads_nothing(tmp_path: Path) -> None:
    trio = Trio(tmp_path)
    async with trio.running() as nodes:
        leader = await trio.leader()
        await nodes[leader].append([(b"a", b"1")])
        for node in nodes[:leader] + nodes[leader + 1 :]:
            await node.__aexit__(None, None, None)
        left, machine = nodes[leader], trio.machines[leader]
        assert machine.values == {b"a": b"1"}
        with pytest.raises(quorate.ClientError):
            await left.read_index(timeout_ms=500)
        with pytest.raises(quorate.ClientError):
            await left.append([(b"a", b"2")], timeout_ms=500)
        await until("it is no leader", lambda: machine.leaderships[-1][0] == "lost")
        assert left.leader.id is None
        assert machine.values == {b"a": b"1"}


@needs_openssl
async def test_an_encrypted_node_reaches_itself(tmp_path: Path) -> None:
    authority = make_authority(tmp_path, "authority")
    certificate, key = make_certificate(tmp_path, "node", authority, ("node-1",))
    (port,) = free_ports(1)
    alone = settings(
        tmp_path,
        1,
        [port],
        **{
            "listener.security.protocol.map": "CONTROLLER:SSL",
            "ssl.certificate.location": certificate,
            "ssl.key.location": key,
            "ssl.ca.location": authority[0],
            "authorizer.class.name": "quorate.authorizer",
            "super.users": "User:CN=node",
        },
    )
    quorate.format_storage(alone, CLUSTER, standalone=True)
    async with quorate.Node(alone, KeyValues()) as node:
        await node.append([(b"a", b"1")])
        await node.read_index()
        assert (await node.describe()).is_leaders_view


async def test_a_node_appends_nothing_to_another_cluster(tmp_path: Path) -> None:
    """The other cluster's controller has taken the address of a voter that is gone."""
    ports = free_ports(2)
    machine, others = KeyValues(), KeyValues()
    alone = settings(tmp_path / "own", 1, ports)
    quorate.format_storage(alone, CLUSTER, initial_controllers=initial_controllers(ports))
    foreign = settings(tmp_path / "foreign", 2, ports)
    foreign["controller.quorum.bootstrap.servers"] = [f"{HOST}:{ports[1]}"]
    quorate.format_storage(foreign, "AnotherAnotherAnother1", standalone=True)
    async with quorate.Node(foreign, others) as other, quorate.Node(alone, machine) as node:
        await other.append([(b"a", b"of the other")])
        with pytest.raises(quorate.ClientError, match="AnotherAnotherAnother1"):
            await node.append([(b"a", b"1")], timeout_ms=2_000)
        with pytest.raises(quorate.ClientError, match="AnotherAnotherAnother1"):
            await node.read_index(timeout_ms=2_000)
        with pytest.raises(quorate.ClientError):
            await node.client.transfer_leadership(other.key, timeout_ms=1_000)
        assert not (await node.describe()).is_leaders_view
        await other.read_index()
        assert others.values == {b"a": b"of the other"}
    assert machine.values == {}


@pytest.mark.parametrize("method", ["apply", "leadership_acquired"])
async def test_an_exit_interrupts_an_append_of_the_state_machine(
    tmp_path: Path, method: str
) -> None:
    """Its append cannot commit, or it appends again and again: the exit is clean all the same."""
    (port,) = free_ports(1)
    alone = settings(tmp_path, 1, [port])
    quorate.format_storage(alone, CLUSTER, standalone=True)

    class Appending(KeyValues):
        calls = 0

        async def append_for_ever(self) -> None:
            while True:
                await node.append([(b"more", b"1")])
                self.calls += 1

        async def apply(self, batch: Sequence[quorate.Record]) -> None:  # type: ignore[override]
            super().apply(batch)
            if method == "apply":
                await self.append_for_ever()

        async def leadership_acquired(self, epoch: int) -> None:  # type: ignore[override]
            super().leadership_acquired(epoch)
            if method == "leadership_acquired":
                await self.append_for_ever()

    machine = Appending()
    # Bound before it starts: the state machine may be called before `async with` binds its name.
    node = quorate.Node(alone, machine)
    async with asyncio.timeout(20), node:
        await node.append([(b"a", b"1")])
        await until("appends", lambda: machine.calls > 3)
    assert [kind for kind, _, _ in machine.leaderships] == ["acquired", "lost"]
    applied = len(machine.offsets)
    assert applied <= 1, "none follow"


async def test_another_error_during_the_exit_is_a_failure(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    alone = settings(tmp_path, 1, [port])
    quorate.format_storage(alone, CLUSTER, standalone=True)

    class Failing(KeyValues):
        def leadership_lost(self, epoch: int) -> None:
            raise KeyError(epoch)

    node = quorate.Node(alone, Failing())
    await node.__aenter__()
    await node.append([(b"a", b"1")])
    await node.read_index()
    with pytest.raises(quorate.StateMachineError, match="KeyError"):
        await node.__aexit__(None, None, None)


async def test_a_call_in_progress_raises_the_failure_of_the_node(tmp_path: Path) -> None:
    """Without the others there is no leader, so that the calls wait."""
    trio = Trio(tmp_path)
    failure = "the state machine failed while it lost the leadership .*KeyError"

    async def run() -> None:
        async with trio.running() as nodes:
            leader = await trio.leader()
            node, machine = nodes[leader], trio.machines[leader]
            is_ready = asyncio.Event()

            async def fail(epoch: int) -> None:
                await is_ready.wait()
                raise KeyError(epoch)

            machine.leadership_lost = fail  # type: ignore[assignment]
            for other in nodes[:leader] + nodes[leader + 1 :]:
                await other.__aexit__(None, None, None)
            await until("it is no leader", lambda: node.leader.id is None)
            waiting = [
                asyncio.create_task(node.append([(b"a", b"1")], timeout_ms=600_000)),
                asyncio.create_task(node.read_index(timeout_ms=600_000)),
            ]
            await asyncio.sleep(0.5)
            assert not any(task.done() for task in waiting)
            is_ready.set()
            async with asyncio.timeout(20):
                for task in waiting:
                    with pytest.raises(quorate.StateMachineError, match=failure):
                        await task

    with pytest.raises(quorate.StateMachineError, match=failure):
        await run()


@pytest.mark.parametrize("timeout_ms", [0, -1])
async def test_a_timeout_is_positive(tmp_path: Path, timeout_ms: int) -> None:
    (port,) = free_ports(1)
    alone = settings(tmp_path, 1, [port])
    quorate.format_storage(alone, CLUSTER, standalone=True)
    with pytest.raises(quorate.MisuseError, match="must be positive"):
        quorate.Node(alone, KeyValues(), request_timeout_ms=timeout_ms)
    async with quorate.Node(alone, KeyValues()) as node:
        with pytest.raises(quorate.MisuseError, match="must be positive"):
            await node.append([(b"a", b"1")], timeout_ms=timeout_ms)
        with pytest.raises(quorate.MisuseError, match="must be positive"):
            await node.read_index(timeout_ms=timeout_ms)
