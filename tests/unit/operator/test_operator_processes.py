"""The operator and real controllers, without a cluster: each action by an operator that was just
started, under a writer that checks that nothing acknowledged is lost.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from quorate.cli.local.workload import Workload
from quorate.rpc.client.quorum_client import QuorumClient
from quorate_operator import naming
from quorate_operator.control.act import ActionFailedError, Actor
from quorate_operator.kube.api import Kube, path
from quorate_operator.objects.resource import QuorumResource
from quorate_operator.observation import status
from quorate_operator.observation.observe import Observer
from quorate_operator.planning import plan as p

from tests.integration.support import here as run_command
from tests.unit.backup.backup_support import CLUSTER as OLD_CLUSTER
from tests.unit.backup.backup_support import WrittenLog, back_up
from tests.unit.operator.fake_api import Object, Store, api_server
from tests.unit.operator.fake_pods import FakePods

pytestmark = pytest.mark.slow

WAIT_S = 60.0
FIRST = 3000
CLUSTER = "-osK_z-yS4WP9LBCencUOA"


class Lab:
    """One Quorum "q" and its operator, which forgets everything after each action."""

    def __init__(self, store: Store, kube: Kube, pods: FakePods) -> None:
        self.store = store
        self.kube = kube
        self.pods = pods
        self.actions: list[p.Action] = []
        self.refusals: set[p.Reason] = set()
        self.status: dict[str, Any] = {}

    @property
    def quorum(self) -> QuorumResource:
        found = self.kube.get("Quorum", "lab", "q")
        assert found is not None
        return QuorumResource.parse(found)

    def scale(self, replicas: int) -> None:
        self.kube.merge("Quorum", "lab", "q", {"spec": {"replicas": replicas}})

    async def step(self) -> p.OperatorPlan:
        """Observe, plan, act and report, once, as an operator that was just started."""

        async def leads() -> bool:
            return True

        quorum = self.quorum
        seen = await Observer(self.kube, self.pods.locate).observe(quorum, None)
        planned = p.plan(quorum.desired, seen.observed)
        self.status = status.build(quorum, seen, planned)
        self.kube.merge("Quorum", "lab", "q", {"status": self.status}, "status")
        self.refusals = {refusal.reason for refusal in planned.refusals}
        if planned.action is not None:
            self.actions.append(planned.action)
            try:
                actor = Actor(self.kube, leads, self.pods.locate)
                await actor.act(planned.action, quorum, seen, None)
            except ActionFailedError as error:
                print(f"  {error}")
        await asyncio.to_thread(self.pods.sync)
        return planned

    async def until(self, what: str, condition: Callable[[p.OperatorPlan], bool]) -> list[p.Action]:
        """Go on until something is so; the actions on the way."""
        first = len(self.actions)
        began = time.monotonic()
        while not condition(await self.step()):
            assert time.monotonic() - began < WAIT_S, (what, self.status, self.actions[first:])
            await asyncio.sleep(0.05)
        done = self.actions[first:]
        names = ", ".join(type(action).__name__ for action in done)
        print(f"{what}: {time.monotonic() - began:.1f} s: {names}")
        return done

    async def until_done(self, what: str) -> list[p.Action]:
        return await self.until(what, lambda planned: planned.is_done)

    @property
    def leader(self) -> int:
        return int(self.status["leader"]["id"])

    def condition(self, name: str) -> tuple[str, str]:
        found = next(c for c in self.status["conditions"] if c["type"] == name)
        return found["status"], found["reason"]


@pytest.fixture
def spec() -> dict[str, Any]:
    """Of the Quorum; tests may have more."""
    return {"image": "quorate:1", "replicas": 3, "tls": {"enabled": False}}


@pytest.fixture
async def lab(tmp_path: Path, spec: dict[str, Any]) -> AsyncIterator[Lab]:
    with api_server() as (store, kube):
        pods = FakePods(store, tmp_path, "q", "lab", spec.get("firstNodeId", 0))
        body = {
            "apiVersion": naming.API_VERSION,
            "kind": "Quorum",
            "metadata": {"name": "q"},
            "spec": spec,
        }
        kube.create("Quorum", "lab", body, "test")
        try:
            yield Lab(store, kube, pods)
        finally:
            pods.close()


@pytest.mark.timeout(300)
async def test_a_quorum_lives_through_scaling_and_lost_disks(lab: Lab) -> None:
    done = await lab.until_done("install")
    assert lab.status["voters"] == 3
    assert lab.condition("Ready") == ("True", "AsWanted")
    formats = [action for action in done if isinstance(action, p.FormatNode)]
    assert [each.standalone for each in formats] == [True, False, False]
    load = Workload(lab.pods.addresses, callers=4, pause_s=0.01)
    await load.start()
    try:
        for what, change in (
            ("scale to 5", lambda: lab.scale(5)),
            ("lose a follower's disk", lambda: lab.pods.lose_disk((lab.leader + 1) % 5)),
            ("lose the leader's disk", lambda: lab.pods.lose_disk(lab.leader)),
            ("scale to 3", lambda: lab.scale(3)),
        ):
            load.measure()
            await asyncio.to_thread(change)
            done = await lab.until_done(what)
            assert done, what
            violations = await load.verify()
            assert not violations, [str(each) for each in violations[:5]]
            print(
                f"  longest gap {load.longest_gap_s * 1000:.0f} ms, lost 0 of "
                f"{load.acknowledged_count}"
            )
        assert lab.status["voters"] == 3
        assert sorted(lab.pods.processes) == [0, 1, 2]
        assert load.acknowledged_count > 100
    finally:
        await load.stop()


def replaced(done: Sequence[p.Action]) -> list[str]:
    """The names of the actions that replace a member. The disruption budget follows the voters."""
    budget = p.ApplyObjects(("PodDisruptionBudget/q",))
    return [type(action).__name__ for action in done if action != budget]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "spec",
    [
        {
            "image": "quorate:1",
            "replicas": 2,
            "tls": {"enabled": False},
            "firstNodeId": FIRST,
            "clusterId": CLUSTER,
        }
    ],
)
async def test_the_leader_is_the_last_surplus_voter_to_go(lab: Lab) -> None:
    """In a quorum whose node ids and cluster id were chosen; a disk is lost on the way."""
    await lab.until_done("install")
    assert lab.status["clusterId"] == CLUSTER
    lab.scale(3)
    await lab.until_done("scale to 3")
    await asyncio.to_thread(lab.pods.lose_disk, 2)
    done = await lab.until_done("lose the last node's disk")
    assert replaced(done) == ["RemoveVoter", "FormatNode", "AddVoter"]
    assert {member["nodeId"]: member["role"] for member in lab.status["members"]} == {
        node: "leader" if node == lab.leader else "voter" for node in range(FIRST, FIRST + 3)
    }
    lab.scale(4)
    await lab.until_done("scale to 4")
    observer = Observer(lab.kube, lab.pods.locate)
    seen = await observer.observe(lab.quorum, None)
    target = next(v for v in seen.observed.voters if v.id == FIRST + 3)

    async def leads() -> bool:
        return True

    if lab.leader != FIRST + 3:
        actor = Actor(lab.kube, leads, lab.pods.locate)
        await actor.act(p.TransferLeadership(target), lab.quorum, seen, None)
    lab.scale(2)
    done = await lab.until_done("scale to 2, led by the last node")
    names = [type(action).__name__ for action in done]
    # Two voters have a disruption budget of their own.
    wanted = ["ApplyObjects", "RemoveVoter", "TransferLeadership", "RemoveVoter", "Resize"]
    assert names == wanted
    assert sorted(lab.pods.processes) == [0, 1]


def restore(lab: Lab, archive: Path) -> None:
    """Run each Job's command on the first volume, if there is a Job, and report its end."""
    for name in ("q-verify", "q-restore"):
        job = lab.store.objects.get(path("Job", "lab", name))
        if job is not None and not job.get("status"):
            run_job(lab, job, archive)


def run_job(lab: Lab, job: Object, archive: Path) -> None:
    *options, _url = job["spec"]["template"]["spec"]["containers"][0]["args"]
    directory = f"--directory={lab.pods.volume(0)}"
    host, port = lab.pods.locate("q", "lab", 0)
    endpoint = f"--endpoint=CONTROLLER://{host}:{port}"
    replaced = {"--directory": directory, "--endpoint": endpoint}
    here = [replaced.get(each.partition("=")[0], each) for each in options]
    done = run_command("restore", *here, archive)
    assert done.status == 0, done.err
    job["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "spec",
    [
        {
            "image": "quorate:1",
            "replicas": 3,
            "tls": {"enabled": False},
            "bootstrap": {"recovery": {"source": {"s3": {"url": "s3://backups/q"}}}},
        }
    ],
)
async def test_a_quorum_begins_with_a_backup(lab: Lab, tmp_path: Path) -> None:
    """A backup of a log that another quorum wrote; then a disk is lost, and is not restored."""
    log = WrittenLog.begun(tmp_path / "old")
    for _ in range(5):
        log.application(10)
    end = log.end
    back_up(log, tmp_path / "archive")
    log.close()

    def step(planned: p.OperatorPlan) -> bool:
        restore(lab, tmp_path / "archive")
        return planned.is_done

    done = await lab.until("restore", step)
    names = [type(action).__name__ for action in done[:6]]
    first = ["ApplyObjects", "VerifyBackup", "CreateRecord", "StartRestore", "CreateStatefulSet"]
    assert names == [*first, "MarkBootstrapped"]
    assert not any(isinstance(each, p.FormatNode) and each.standalone for each in done)
    assert lab.status["voters"] == 3
    assert lab.status["clusterId"] != OLD_CLUSTER
    async with QuorumClient(lab.pods.addresses[:3]) as client:
        found = [record async for record in client.read(0, metadata=False)]
    values = [(record.offset, bytes(record.value or b"").decode()) for record in found]
    assert values == [(offset, f"value-{offset}") for offset in range(3, end)]
    del lab.store.objects[path("Job", "lab", "q-restore")]
    await asyncio.to_thread(lab.pods.lose_disk, 0)
    done = await lab.until_done("lose the restored disk")
    assert replaced(done) == ["RemoveVoter", "FormatNode", "AddVoter"]


@pytest.mark.timeout(300)
async def test_a_hibernated_quorum_wakes_with_its_voters_and_records(lab: Lab) -> None:
    """It is scaled, and one disk is lost, while it sleeps."""
    await lab.until_done("install")
    voters = set(lab.status["voterSet"])
    load = Workload(lab.pods.addresses, callers=2, pause_s=0.01)
    await load.start()
    try:
        while load.acknowledged_count < 50:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        lab.kube.merge("Quorum", "lab", "q", {"spec": {"hibernated": True}})
        await lab.until("hibernate", lambda planned: planned.refuses(p.Reason.HIBERNATED))
        assert not lab.pods.processes
        assert set(lab.status["voterSet"]) == voters
        shutil.rmtree(lab.pods.volume(2))
        lab.kube.merge("Quorum", "lab", "q", {"spec": {"hibernated": False, "replicas": 4}})
        done = await lab.until_done("wake")
        assert done[0] == p.Resize(4, 0)
        assert not any(isinstance(each, p.FormatNode) and each.standalone for each in done)
        assert len(set(lab.status["voterSet"]) & voters) == 2
        assert lab.status["voters"] == 4
        violations = await load.verify()
        assert not violations, [str(each) for each in violations[:5]]
    finally:
        await load.stop()


@pytest.mark.timeout(300)
async def test_a_lost_majority_is_left_alone(lab: Lab) -> None:
    await lab.until_done("install")
    for ordinal in (0, 1):
        await asyncio.to_thread(lab.pods.lose_disk, ordinal)
    before = set(lab.store.objects)
    await lab.until(
        "lose two of three disks",
        lambda planned: planned.refuses(p.Reason.MAJORITY_DISKS_LOST) and not lab.status["leader"],
    )
    acted = len(lab.actions)
    lab.scale(5)
    for _ in range(3):
        await lab.step()
    assert len(lab.actions) == acted
    assert lab.condition("DataLossRisk") == ("True", "MajorityDisksLost")
    assert set(lab.store.objects) == before
    assert not (lab.pods.volume(0) / "meta.properties").exists()
