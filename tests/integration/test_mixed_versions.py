"""This version next to the one before snapshots had offsets: both ways, and back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from quorate.rpc.client.quorum_client import AdminError, OutcomeUnknownError, QuorumClient

from tests.earlier import EarlierNode, unpack
from tests.integration.support import (
    PARTITION,
    Quorum,
    assert_clean,
    quorate,
    succeed,
    until,
)
from tests.integration.test_snapshot_offsets import (
    SMALL,
    Appended,
    append,
    check,
    is_cleaned,
    read,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("earlier"))


INTERVAL = "metadata.log.max.snapshot.interval.ms"


class Mixed(Quorum):
    """Controllers that run either version."""

    nodes: dict[int, EarlierNode]  # type: ignore[assignment]

    def __init__(self, folder: Path, earlier: Path) -> None:
        super().__init__(folder, (1, 2, 3), **SMALL)
        for node in self.nodes.values():
            node.__class__ = EarlierNode
        self.earlier = earlier
        for node_id in (2, 3):
            self.nodes[node_id].sources = earlier
        # The leader drops its log rarely, so that no other node needs a snapshot of its by chance.
        self.nodes[1].configure({INTERVAL: None})

    def change_version(self, node_id: int, sources: Path | None) -> None:
        """Stop a node, start the other version on its directory."""
        node = self.nodes[node_id]
        assert node.stop() == 0
        assert_clean(node.said())
        node.sources = sources
        node.start()

    def replace_disk(self, node_id: int) -> None:
        """A new, empty disk for a voter; it gets a snapshot of the leader."""
        node = self.nodes[node_id]
        old = node.directory_id
        node.kill()
        node.lose_disk()
        node.format("--no-initial-controllers")
        node.start()
        node.wait_said("installed snapshot")
        succeed(*self.ask, "remove-controller", "-i", node_id, "-d", old)
        succeed(*self.ask, "add-controller", "-c", node.properties)
        self.until_voters(*self.nodes)

    def until_fetches(self, node_id: int) -> None:
        """Wait until a voter that has just been started fetches from a leader."""
        began_ms = time.time() * 1000

        def fetches() -> bool:
            ran = quorate(*self.ask, "describe", "--replication", "--json")
            rows = ran.json() if ran.status == 0 else []
            return any(
                row["nodeId"] == node_id
                and (row["status"] == "Leader" or row["lastFetchTimestamp"] > began_ms)
                for row in rows
            )

        until(f"{node_id} fetches", fetches)

    def write(self, appended: Appended, count: int) -> None:
        asyncio.run(append(self.addresses, count, appended))


@pytest.fixture
def quorum(tmp_path: Path, earlier: Path) -> Iterator[Mixed]:
    quorum = Mixed(tmp_path, earlier)
    try:
        quorum.form()
        yield quorum
    finally:
        quorum.kill()


def known(node: EarlierNode, appended: Appended, begin: int = 0) -> list[bool]:
    """Wait until the node has every record from `begin` on, in order; which have offsets. Those
    are right.
    """
    wanted = [(offset, value) for offset, value in appended if offset >= begin]

    def found() -> list[tuple[int | None, bytes]] | None:
        records = asyncio.run(read(node.address, begin))
        return records if [value for _, value in records] == [v for _, v in wanted] else None

    records = until(f"{node.id} has all from {begin} on", found)
    assert all(one[0] in (None, two[0]) for one, two in zip(records, wanted, strict=True))
    return [offset is not None for offset, _ in records]


def in_snapshot(node: EarlierNode, appended: Appended) -> int:
    """How many of the records its newest checkpoint stands for."""
    checkpoints = (node.data / PARTITION).glob("*.checkpoint")
    end = max(int(path.name.split("-")[0]) for path in checkpoints)
    return sum(offset < end for offset, _ in appended)


async def follow_an_upgrade(quorum: Mixed) -> None:
    """One read that follows the log for each node, which it begins at, while they are upgraded."""
    got: dict[int, Appended] = {1: [], 2: [], 3: []}

    async def follow(first: int) -> None:
        async with QuorumClient(
            [quorum.nodes[first].address, *quorum.addresses.split(",")]
        ) as client:
            async for record in client.read(follow=True):
                if record.key is not None:
                    got[first].append((record.offset or 0, bytes(record.value or b"")))

    tasks = [asyncio.create_task(follow(first)) for first in got]
    await append(quorum.addresses, 10, [])
    for node_id in (2, 3):
        await asyncio.to_thread(quorum.change_version, node_id, None)
        await asyncio.to_thread(quorum.until_voters, 1, 2, 3)
        with suppress(OutcomeUnknownError):  # the leader may change: what is in the log counts
            await append(quorum.addresses, 10, [])
    wanted = await read(quorum.nodes[1].address, linearizable=True)
    assert len(wanted) >= 10
    enough = len(wanted)
    await asyncio.to_thread(
        until, "all have all", lambda: all(len(each) >= enough for each in got.values())
    )
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert all(each == wanted for each in got.values())


def test_the_log_is_followed_while_nodes_are_upgraded(quorum: Mixed) -> None:
    asyncio.run(follow_an_upgrade(quorum))


@pytest.mark.timeout(240)
def test_both_versions_read_each_others_snapshots(quorum: Mixed) -> None:
    one, two, three = (quorum.nodes[node_id] for node_id in (1, 2, 3))
    appended: Appended = []
    quorum.write(appended, 260)
    for node in quorum.nodes.values():
        until(f"{node.id} has cleaned its log", lambda node=node: is_cleaned(node))
    check(one, appended)
    # What the earlier version wrote itself has no offsets, and is not taken for what it is not.
    assert not known(two, appended)[0]

    # The earlier version installs a snapshot of this one, and copies its offsets into its own.
    # It writes none before the check: its own drops the offsets of what it fetched after that.
    two.configure({INTERVAL: None})
    quorum.replace_disk(2)
    check(two, appended)
    installed = in_snapshot(two, appended)
    assert installed > 100
    two.configure(SMALL)
    quorum.change_version(2, quorum.earlier)
    quorum.until_fetches(2)
    quorum.write(appended, 50)
    until("2 has written a snapshot", lambda: in_snapshot(two, appended) == len(appended))
    there = known(two, appended)
    assert all(there[:installed])
    assert not any(there[installed:])

    # Upgraded in place: what has no offset stays without, what is new has its own.
    quorum.change_version(2, None)
    assert known(two, appended) == there
    before = len(appended)
    quorum.write(appended, 50)
    until("2 has written a snapshot", lambda: in_snapshot(two, appended) == len(appended))
    assert known(two, appended) == there + [True] * (len(appended) - before)
    for index in (before, len(appended) - 2):
        assert all(known(two, appended, appended[index][0] + 1))

    # The way back: the earlier version opens the directory, writes on, and leads.
    one.configure(SMALL)
    covered = in_snapshot(one, appended)
    quorum.change_version(1, quorum.earlier)
    # Unless 2 has led meanwhile, cleaned its log, and sent its own snapshot to 1.
    kept = known(one, appended)[:covered]
    assert kept in ([True] * covered, known(two, appended)[:covered])
    quorum.transfer(1)
    quorum.write(appended, 240)
    until("1 has written a snapshot", lambda: in_snapshot(one, appended) == len(appended))
    there = known(one, appended)
    assert there[:covered] == kept
    assert not all(there)
    quorum.change_version(3, None)
    quorum.replace_disk(3)
    assert known(three, appended)[:covered] == kept
    for node in quorum.nodes.values():
        assert node.stop() == 0
        assert_clean(node.said())


def test_appends_are_repeated_once_all_nodes_support_it(quorum: Mixed) -> None:
    """Until then, the client appends as before, whichever version leads."""
    quorum.transfer(2)

    async def append_at_level_0() -> int:
        async with QuorumClient(quorum.addresses.split(",")) as client:
            with pytest.raises(AdminError):
                await client.finalize_application_version(timeout_ms=5_000)
            await client.append([(b"key", b"1")])
            await client.append_value(b"2")
            assert client._producer._all._session is None
            return await client.append_value(b"3")

    async def is_finalized(client: QuorumClient) -> bool:
        with suppress(AdminError):
            await client.finalize_application_version()
            return True
        return False

    async def append_at_level_1() -> list[int]:
        async with QuorumClient(quorum.addresses.split(",")) as client:
            await client.append_value(b"4")
            assert client._producer._all._session is None
            async with asyncio.timeout(20):
                while not await is_finalized(client):  # noqa: ASYNC110
                    await asyncio.sleep(0.2)  # until the controllers have registered
            offsets = await asyncio.gather(*(client.append_value(b"%d" % n) for n in range(5, 9)))
            assert client._producer._all._session is not None
            return offsets

    before = asyncio.run(append_at_level_0())
    for node_id in (2, 3):
        quorum.change_version(node_id, None)
        quorum.until_fetches(node_id)  # before another one stops
    offsets = asyncio.run(append_at_level_1())
    assert before < offsets[0] < offsets[-1]
