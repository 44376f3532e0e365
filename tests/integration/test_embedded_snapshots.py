"""State machines that write their own snapshots: over gRPC, and with nodes that are killed."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import quorate
from quorate.recipes import Counter, Lock
from quorate.rpc.wire.values import UpgradeType

from tests.integration.embedded_support import CLUSTER, KeyValues, settings, until
from tests.integration.test_embedded import has_snapshot
from tests.processes import HOST, Process, free_ports, write_properties

FEATURES = {"application.version": 1}
OFTEN = {
    "metadata.log.max.record.bytes.between.snapshots": 1,
    "metadata.max.retention.bytes": 1,
}


class State(KeyValues):
    """The same dictionary, whose snapshots are its items."""

    def __init__(self) -> None:
        super().__init__()
        self.chunks = 0
        self.after = 0

    def snapshot(self) -> list[bytes]:
        return [chunk or b"" for item in self.values.items() for chunk in item]

    def restore(self, snapshot: quorate.StateSnapshot) -> None:
        state = list(snapshot.state)
        self.values = dict(zip(state[::2], state[1::2], strict=True))
        self.offsets = []
        for batch in snapshot:
            self.apply(batch)
        self.chunks, self.after = len(state), len(self.offsets)
        self.restored = snapshot.offset


async def until_the_log_starts_after(node: quorate.Node, address: str, offset: int) -> None:
    async with asyncio.timeout(30):
        number = 0
        while True:
            number += 1
            await node.append([(b"n", b"%d" % number)])
            status = await node.client.node_status(address)
            if status.log_start_offset > offset:
                return


async def finalized(node: quorate.Node) -> None:
    """Wait until a new quorum has finalized its levels."""
    async with asyncio.timeout(30):
        while True:
            levels = (await node.client.describe_features()).features
            if any(
                each.name == "application.version" and each.finalized_level == 1 for each in levels
            ):
                return
            await asyncio.sleep(0.02)


async def test_recipes_miss_no_record_that_a_state_replaced(tmp_path: Path) -> None:
    ports = free_ports(1)
    config = settings(tmp_path, 1, ports, **OFTEN)
    quorate.format_storage(config, CLUSTER, standalone=True, features=FEATURES)
    async with quorate.Node(config, State()) as node, asyncio.timeout(60):
        await finalized(node)
        counter = Counter(node.client, b"c")
        assert await counter.add() == 1
        (version,) = [each.offset async for each in node.client.read() if each.key == b"c"]
        assert version is not None
        await until_the_log_starts_after(node, f"{HOST}:{ports[0]}", version)
        for call in (
            Counter(node.client, b"c").add,
            Counter(node.client, b"c").value,
            Lock(node.client, b"c").acquire,
        ):
            with pytest.raises(quorate.ClientError, match="the state of a state machine"):
                await call()


async def test_a_node_gets_the_state_of_another_one(tmp_path: Path) -> None:
    """A new node, one that was down while the log went on, and both after the way back."""
    ports = free_ports(2)
    first = settings(tmp_path, 1, ports, **OFTEN)
    second = settings(
        tmp_path, 2, ports, **OFTEN, **{"quorate.unformatted.format": True, "cluster.id": CLUSTER}
    )
    quorate.format_storage(first, CLUSTER, standalone=True, features=FEATURES)
    state, address = State(), f"{HOST}:{ports[0]}"
    async with quorate.Node(first, state) as one:
        last = await one.append([(b"a", b"1"), (b"b", b"2")])
        await until_the_log_starts_after(one, address, last.base_offset + 1)
        joined = State()
        async with quorate.Node(second, joined) as two:
            await two.read_index()
            assert joined.values == state.values
            assert joined.restored is not None
            assert joined.chunks == 2 * 3
            assert b"a" not in [record.key async for record in one.client.read(0, metadata=False)]
        last = await one.append([(b"c", b"3")])
        await until_the_log_starts_after(one, address, last.base_offset)
        for level, upgrade_type in ((None, None), (0, UpgradeType.SAFE_DOWNGRADE)):
            if level is not None:
                assert upgrade_type is not None
                await one.client.update_features(
                    "application.version", level, upgrade_type=upgrade_type
                )
                last = await one.append([(b"d", b"4")])
                await until_the_log_starts_after(one, address, last.base_offset)
            again = State()
            async with quorate.Node(second, again) as two:
                await two.read_index()
                assert again.values == state.values
                assert again.restored is not None
                await two.append([(b"e", b"%d" % (level is None))])
            assert again.chunks >= 2 * 3
    assert again.after > 0, "at level 0 the records after the state are kept"
    restarted = State()
    async with quorate.Node(first, restarted) as one, quorate.Node(second, State()):
        await one.read_index()
    assert restarted.values == state.values


async def test_conditions_hold_for_keys_whose_records_are_gone(tmp_path: Path) -> None:
    """The snapshot has the state of a machine, and the key index beside it."""
    own = settings(tmp_path, 1, free_ports(1), **OFTEN)
    quorate.format_storage(own, CLUSTER, standalone=True, features=FEATURES)
    address = own["controller.quorum.bootstrap.servers"][0]  # type: ignore[index]
    async with quorate.Node(own, State()) as node:
        await finalized(node)
        offset = (await node.append([(b"a", b"1"), (b"gone", b"1")])).base_offset
        await node.append([(b"gone", None)])
        last = await node.append([(b"", b"without a key of its own")])
        await until_the_log_starts_after(node, address, last.base_offset)
    state = State()
    async with quorate.Node(own, state) as node:
        with pytest.raises(quorate.ConditionFailedError) as failed:
            await node.append(
                [(b"a", b"2")], if_key_offsets={b"a": offset - 1, b"gone": -1, b"new": -1}
            )
        assert failed.value.key_offsets == {b"a": offset}
        done = await node.append(
            [(b"a", b"2")], if_key_offsets={b"a": offset, b"gone": -1, b"new": -1}
        )
        with pytest.raises(quorate.ConditionFailedError) as failed:
            await node.append([(b"a", b"3")], if_last_offset=done.base_offset - 1)
        assert failed.value.last_offset == done.base_offset
        await node.read_index()
        assert state.restored is not None
        assert state.restored > last.base_offset
        assert state.values[b"a"] == b"2"


SLOW = """
import asyncio, itertools, json, sys, time
import quorate

class Slow(quorate.StateMachine):
    def __init__(self):
        self.values = {}
    def apply(self, batch):
        self.values.update((r.key.decode(), r.value.decode()) for r in batch)
    def snapshot(self):
        chunks = [json.dumps(item).encode() for item in self.values.items()]
        return (time.sleep(float(sys.argv[2])) or chunk for chunk in chunks)
    def restore(self, snapshot):
        values = dict(map(json.loads, snapshot.state))
        for batch in snapshot:
            values.update((r.key.decode(), r.value.decode()) for r in batch)
        self.values = values

async def main():
    machine = Slow()
    async with quorate.Node(sys.argv[1], machine) as node:
        await node.read_index()
        print("has", json.dumps(machine.values), flush=True)
        for number in itertools.count(max(map(int, machine.values.values()), default=0) + 1):
            key = str(len(machine.values)) if len(machine.values) < 30 else "again"
            result = await node.append([(key.encode(), b"%d" % number)])
            await node.applied(result.base_offset)
            print("acknowledged", json.dumps([key, str(number)]), flush=True)
            await asyncio.sleep(0.02)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_node_that_is_killed_while_it_writes_a_snapshot_keeps_its_state(tmp_path: Path) -> None:
    path = tmp_path / "node.properties"
    own = settings(tmp_path, 1, free_ports(1), **OFTEN)
    own["controller.quorum.bootstrap.servers"] = ",".join(
        own["controller.quorum.bootstrap.servers"]  # type: ignore[arg-type]
    )
    write_properties(path, {**own, "process.roles": "controller", **NAMES})
    quorate.format_storage(path, CLUSTER, standalone=True, features=FEATURES)
    log = tmp_path / "node.log"
    expected: dict[str, str] = {}
    killed = 0
    for turn in range(6):
        # The first turns write quickly, so that there is a state; the others are killed within.
        pause_s = 0.0 if turn < 2 else 0.2
        with Process("node", log, sys.executable, "-c", SLOW, path, pause_s) as process:
            process.start()
            process.wait_until("it has restored", lambda p=process: has(p) is not None)
            restored = has(process)
            assert restored is not None
            lost = {key for key in expected if int(restored.get(key, 0)) < int(expected[key])}
            assert not lost, (expected, restored)
            if pause_s:
                process.wait_until("it writes", lambda: list(tmp_path.rglob("*-writing*")))
            else:
                process.wait_until("a snapshot", lambda: has_snapshot(tmp_path, 1))
                process.wait_until("30 keys", lambda p=process: len(acknowledged(p)) > 30)
            killed += bool(list(tmp_path.rglob("*-writing*")))
            process.kill()
            expected = {**restored, **dict(acknowledged(process))}
    assert killed >= 4
    assert len(expected) == 31


NAMES = {"controller.listener.names": "CONTROLLER"}


def has(process: Process) -> dict[str, str] | None:
    lines = [line for line in process.recently().splitlines() if line.startswith("has ")]
    found: dict[str, str] | None = json.loads(lines[0][4:]) if lines else None
    return found


def acknowledged(process: Process) -> Sequence[tuple[str, str]]:
    """(key, value) of each acknowledged write since the start, in order."""
    name = "acknowledged "
    lines = process.recently().split("\n")[:-1]
    return [
        (key, value)
        for line in lines
        if line.startswith(name)
        for key, value in [json.loads(line[len(name) :])]
    ]


@pytest.mark.slow
async def test_replicas_with_and_without_a_state_agree(tmp_path: Path) -> None:
    """A node without `snapshot` gets a state, copies it, and passes it on."""
    ports = free_ports(2)
    first = settings(tmp_path, 1, ports, **OFTEN)
    joining = {"quorate.unformatted.format": True, "cluster.id": CLUSTER}
    second = settings(tmp_path, 2, ports, **OFTEN, **joining)
    quorate.format_storage(first, CLUSTER, standalone=True, features=FEATURES)

    class Reading(State):
        def snapshot(self) -> None:  # type: ignore[override]
            return None

    address = f"{HOST}:{ports[0]}"
    async with quorate.Node(first, State()) as one:
        last = await one.append([(b"a", b"1")])
        await until_the_log_starts_after(one, address, last.base_offset)
        async with quorate.Node(second, Reading()) as two:
            await two.read_index()
            begin = await two.append([(b"b", b"2")])
            await until(
                "its own snapshot",
                lambda: [
                    path
                    for path in tmp_path.glob("node-2/*/*.checkpoint")
                    if int(path.name.partition("-")[0]) > begin.base_offset
                ],
            )
        state = Reading()
        async with quorate.Node(second, state) as two:
            await two.read_index()
            assert state.values.items() >= {b"a": b"1", b"b": b"2"}.items()
            assert state.chunks > 0
