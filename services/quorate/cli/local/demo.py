"""`quorate quickstart --demo`: KIP-853's scenarios, run with real processes under load.

Each step changes the quorum while callers append, and waits until the change is complete. It then
pauses the callers, reads the whole log and checks it against every response they received. For each
step the demo prints the longest time without an acknowledged append, among other measurements.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from quorate.cli.local.local_cluster import LocalCluster
from quorate.cli.local.workload import Workload
from quorate.cli.output import CommandError, print_json
from quorate.raft.messages import DescribeQuorumResponse
from quorate.raft.types import ReplicaKey
from quorate.rpc.client.quorum_client import ClientError, QuorumClient

STEP_TIMEOUT_S = 30.0
LOAD_S = 0.7
"""How long the callers keep appending between a change and the check of the log, seconds."""
SNAPSHOTS = {
    "internal.metadata.log.segment.bytes": 64 * 1024,
    "metadata.log.max.record.bytes.between.snapshots": 64 * 1024,
    "metadata.log.max.snapshot.interval.ms": 2_000,
    "metadata.max.retention.bytes": 64 * 1024,
}
"""Small limits: the start of the log is soon only in snapshots, so the check reads those too."""

Condition = Callable[[DescribeQuorumResponse], bool]


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one step."""

    name: str
    outcome: str
    seconds: float
    longest_wait_ms: float
    """The longest time without an acknowledgement."""
    acknowledged: int
    lost: int


class Demo:
    """Runs the demo in one folder."""

    def __init__(self, folder: Path, console: Console) -> None:
        self._folder = folder
        self._console = console
        self.cluster = LocalCluster(folder / "dynamic", controller_settings=SNAPSHOTS)
        self.steps: list[Step] = []
        self._admin: QuorumClient | None = None
        self._load: Workload | None = None

    async def tell(self) -> None:
        """Run all chapters. Raises CommandError at the first that fails."""
        try:
            await self._step("form a quorum of three from one", self._form)
            await self._step("commit under load", self._commit)
            await self._step("kill -9 the leader", self._kill_leader)
            await self._step("lose a follower's disk and replace it", self._lose_follower_disk)
            await self._step("lose the leader's disk and replace it", self._lose_leader_disk)
            await self._step("grow to five voters", self._grow)
            await self._step("shrink to three, the leader among the removed", self._shrink)
            await self._close()
            self.cluster = LocalCluster(
                self._folder / "static", static_voters=True, controller_settings=SNAPSHOTS
            )
            await self._step("form a quorum of static voters (kraft.version 0)", self._form_static)
            await self._step("upgrade kraft.version to 1, then remove a voter", self._upgrade)
        finally:
            await self._close()

    async def _close(self) -> None:
        if self._load is not None:
            await self._load.stop()
        if self._admin is not None:
            await self._admin.close()
        self._load = self._admin = None
        await asyncio.to_thread(self.cluster.stop)

    async def _step(self, name: str, chapter: Callable[[], Awaitable[str]]) -> None:
        started = time.monotonic()
        if self._load is not None:
            self._load.measure()
        with self._console.status(f"{name} …"):
            try:
                outcome = await asyncio.wait_for(chapter(), STEP_TIMEOUT_S)
            except TimeoutError:
                self.cluster.check_running()
                raise CommandError(
                    f"{name}: not complete after {STEP_TIMEOUT_S:.0f} s; "
                    f"see the logs in {self._folder}"
                ) from None
            assert self._load is not None, "the first step starts the load"
            await self.cluster.poll(LOAD_S)
            gap_s = self._load.longest_gap_s
            violations = await self._load.verify()
        seconds = time.monotonic() - started
        acknowledged = self._load.acknowledged_count
        step = Step(name, outcome, seconds, gap_s * 1000, acknowledged, len(violations))
        self.steps.append(step)
        self._print(step)
        if violations:
            raise CommandError(f"{name}: {violations[0]} (and {len(violations) - 1} more)")

    def _print(self, step: Step) -> None:
        self._console.print(
            f"[green]✓[/] {step.name:<49} {step.seconds:5.1f} s   "
            f"{step.acknowledged:>6} acknowledged, none lost   "
            f"longest wait {step.longest_wait_ms:4.0f} ms",
            highlight=False,
        )
        self._console.print(f"    [dim]{step.outcome}[/]", highlight=False)

    # --- the chapters -----------------------------------------------------------------------------

    async def _form(self) -> str:
        await self._start([1, 2, 3])
        return (
            "controller 1 was formatted --standalone; 2 and 3 joined automatically; "
            f"cluster {self.cluster.cluster_id}"
        )

    async def _commit(self) -> str:
        assert self._load is not None
        before, started = self._load.acknowledged_count, time.monotonic()
        await self.cluster.poll(2.0)
        count = self._load.acknowledged_count - before
        rate = count / (time.monotonic() - started)
        return f"{count} durable commits on a majority, {rate:.0f} per second"

    async def _kill_leader(self) -> str:
        old, old_epoch = await self._leader()
        self.cluster.kill(old)
        described = await self._until(lambda d: d.leader.epoch > old_epoch)
        self.cluster.start([old])
        await self._until(lambda d: len(d.voters) == 3 and _all_caught_up(d))
        return (
            f"controller {old} died in epoch {old_epoch}; {described.leader.id} leads epoch "
            f"{described.leader.epoch}; {old} restarted and caught up"
        )

    async def _lose_follower_disk(self) -> str:
        leader, _ = await self._leader()
        return await self._replace_disk(next(i for i in (1, 2, 3) if i != leader))

    async def _lose_leader_disk(self) -> str:
        leader, _ = await self._leader()
        return await self._replace_disk(leader)

    async def _replace_disk(self, node_id: int) -> str:
        node = self.cluster.nodes[node_id]
        old = node.directory_id
        self.cluster.kill(node_id)
        self.cluster.lose_disk(node_id)
        self.cluster.format(node_id, standalone=False)
        new = node.directory_id
        self.cluster.start([node_id])
        key = ReplicaKey(node_id, new)
        await self._until(
            lambda d: (
                len(d.voters) == 3
                and any(status.replica == key for status in d.voters)
                and _all_caught_up(d)
            )
        )
        return f"controller {node_id}: directory {new} replaced {old} among the voters"

    async def _grow(self) -> str:
        for node_id in (4, 5):
            self.cluster.add(node_id)
        self.cluster.start([4, 5])
        await self._until(lambda d: len(d.voters) == 5 and _all_caught_up(d))
        return "controllers 4 and 5 fetched the log as observers, then joined"

    async def _shrink(self) -> str:
        assert self._admin is not None
        leader, _ = await self._leader()
        other = next(i for i in (5, 4, 3) if i != leader)
        for node_id in (leader, other):
            key = ReplicaKey(node_id, self.cluster.nodes[node_id].directory_id)
            await self._admin.remove_voter(key)
        gone = {leader, other}
        described = await self._until(
            lambda d: {s.replica.id for s in d.voters}.isdisjoint(gone) and d.leader.id not in gone
        )
        await asyncio.to_thread(self.cluster.stop, gone)
        return f"removed {leader} (the leader) and {other}; {described.leader.id} leads"

    async def _form_static(self) -> str:
        described = await self._start([11, 12, 13])
        return f"voters from controller.quorum.voters; {described.leader.id} leads"

    async def _upgrade(self) -> str:
        """Make three static voters (kraft.version 0) dynamic, and remove one of them."""
        assert self._admin is not None
        await self._admin.update_features("kraft.version", 1)
        described = await self._until(
            lambda d: d.kraft_version == 1 and d.voter_set == d.committed_voters
        )
        victim = next(s.replica for s in described.voters if s.replica.id != described.leader.id)
        await self._admin.remove_voter(victim)
        await self._until(lambda d: len(d.voters) == 2)
        return f"the log now has the voters' directory ids; removed controller {victim.id}"

    async def _start(self, ids: Sequence[int]) -> DescribeQuorumResponse:
        """Start a new quorum of these controllers, and the load."""
        self.cluster.create(ids)
        self.cluster.start()
        self._admin = QuorumClient(self.cluster.addresses)
        described = await self._until(lambda d: len(d.voters) == len(ids) and _all_caught_up(d))
        self._load = Workload(self.cluster.addresses)
        await self._load.start()
        return described

    # --- queries ----------------------------------------------------------------------------------

    async def _leader(self) -> tuple[int, int]:
        described = await self._until(lambda d: d.leader.id is not None)
        assert described.leader.id is not None
        return described.leader.id, described.leader.epoch

    async def _until(self, condition: Condition) -> DescribeQuorumResponse:
        assert self._admin is not None
        return await until(self.cluster, self._admin, condition)


async def until(
    cluster: LocalCluster, admin: QuorumClient, condition: Condition
) -> DescribeQuorumResponse:
    """Poll the leader's description until `condition` holds; the step's timeout ends the wait."""
    while True:
        try:
            description = await admin.describe_quorum()
        except ClientError:
            pass
        else:
            if description.is_leaders_view and condition(description.response):
                return description.response
        await cluster.poll(0.05)


def _all_caught_up(description: DescribeQuorumResponse) -> bool:
    """Whether every voter's log reaches the high watermark."""
    floor = description.high_watermark
    return all(status.log_end_offset >= floor for status in description.voters)


def run_demo(folder: Path | None, *, as_json: bool) -> int:
    """Run the demo. Returns 0 if no record was lost, and raises CommandError otherwise.

    Without a folder, the demo uses a temporary one and removes it after success.
    """
    temporary = folder is None
    root = Path(tempfile.mkdtemp(prefix="quorate-demo-")) if folder is None else folder
    console = Console(stderr=as_json, soft_wrap=True)
    demo = Demo(root, console)
    started = time.monotonic()
    try:
        asyncio.run(demo.tell())
        seconds = time.monotonic() - started
        acknowledged = sum(step.acknowledged for step in demo.steps[-1:] + demo.steps[-3:-2])
        if as_json:
            print_json({"seconds": seconds, "steps": [asdict(step) for step in demo.steps]})
        console.print(
            f"\n{acknowledged} acknowledged records: none lost, none duplicated; {seconds:.0f} s.",
            highlight=False,
        )
        if temporary:
            shutil.rmtree(root, ignore_errors=True)
    finally:
        demo.cluster.stop()
    return 0
