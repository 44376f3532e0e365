"""A Quorum that begins with a backup: the Job that restores it, and when it does not run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from quorate.raft.types import ReplicaKey
from quorate_operator import naming, pod
from quorate_operator.control.act import Actor
from quorate_operator.kube.api import Kube, path
from quorate_operator.kube.job_state import JobRun
from quorate_operator.objects import recovery
from quorate_operator.objects.resource import QuorumResource
from quorate_operator.observation import status
from quorate_operator.observation.observe import Observer, Snapshot
from quorate_operator.planning import plan as p

from tests.unit.operator.fake_api import Object, Store, created
from tests.unit.operator.test_operator_objects import resource

CLUSTER = "yFPgY5iXQYqr5sMxfdxu0Q"
SOURCE = {"s3": {"url": "s3://backups/old", "secretName": "keys"}}
CLAIM = {"claim": {"name": "backups", "path": "old"}}
RECORD = p.BootstrapRecord(CLUSTER)
JOB = "q-restore"
VERIFY = "q-verify"
DESIRED = p.Desired(3, recovers=True)


def recovering(source: Object = SOURCE, **more: Any) -> QuorumResource:
    return resource(bootstrap={"recovery": {"source": source, **more}})


def reasons(planned: p.OperatorPlan) -> list[p.Reason]:
    return [refusal.reason for refusal in planned.refusals]


# --- the plan -------------------------------------------------------------------------------------


def test_the_proof_the_record_the_job_and_then_the_pods() -> None:
    observed = p.Observed()
    assert p.plan(DESIRED, observed).action == p.VerifyBackup()
    planned = p.plan(DESIRED, replace(observed, verification=JobRun(VERIFY)))
    assert (planned.action, reasons(planned)) == (None, [p.Reason.RECOVERING])
    observed = replace(observed, verification=JobRun(VERIFY, True, "t"))
    assert p.plan(DESIRED, observed).action == p.CreateRecord(None)
    observed = replace(observed, record=RECORD)
    assert p.plan(DESIRED, observed).action == p.StartRestore(CLUSTER)
    observed = replace(observed, volumes=frozenset({0}), restore=JobRun(JOB))
    planned = p.plan(DESIRED, observed)
    assert (planned.action, reasons(planned)) == (None, [p.Reason.RECOVERING])
    done = replace(observed, restore=JobRun(JOB, True, "t"))
    assert p.plan(DESIRED, done).action == p.CreateStatefulSet(3)


def test_a_failed_restore_creates_no_pod() -> None:
    text = "quorate: error: the backup is damaged"
    observed = p.Observed(record=RECORD, restore=JobRun(JOB, False, "t", text))
    planned = p.plan(DESIRED, observed)
    assert (planned.action, reasons(planned)) == (None, [p.Reason.RECOVERY_FAILED])
    assert text in planned.refusals[0].text
    made = status.build(recovering(), Snapshot(observed), planned)
    ready = next(each for each in made["conditions"] if each["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "RecoveryFailed")
    assert text in ready["message"]


@pytest.mark.parametrize(
    "observed",
    [
        p.Observed(record=RECORD, is_marked=True),
        p.Observed(record=p.BootstrapRecord(CLUSTER, adopted=True)),
        p.Observed(volumes=frozenset({0, 1})),
    ],
)
def test_nothing_is_restored_once_the_quorum_has_begun_or_has_volumes(
    observed: p.Observed,
) -> None:
    """A lost StatefulSet comes back, on the volumes that are there."""
    assert isinstance(p.plan(DESIRED, observed).action, p.CreateStatefulSet)


def node(ordinal: int, directory: str | None, **more: Any) -> p.ObservedNode:
    cluster = CLUSTER if directory else ""
    return p.ObservedNode(
        ordinal, ordinal, f"uid-{ordinal}", True, directory, cluster, True, **more
    )


def test_a_disk_that_is_there_is_adopted_and_not_restored_over() -> None:
    observed = p.Observed(
        size=1,
        nodes=(node(0, "A" * 22),),
        volumes=frozenset({0}),
        inherited=frozenset({0}),
    )
    desired = p.Desired(1, recovers=True)
    assert p.plan(desired, observed).action == p.CreateRecord(CLUSTER, adopted=True)


def test_an_empty_disk_is_never_formatted_in_place_of_a_restore() -> None:
    """Neither one that a Quorum left, nor one that was lost after the restore."""
    desired = p.Desired(1, recovers=True)
    observed = p.Observed(
        size=1, nodes=(node(0, None),), volumes=frozenset({0}), inherited=frozenset({0})
    )
    assert reasons(p.plan(desired, observed)) == [p.Reason.RECOVERY_FAILED]
    observed = p.Observed(size=1, nodes=(node(0, None),), record=RECORD)
    assert reasons(p.plan(desired, observed)) == [p.Reason.RECOVERY_FAILED]
    assert isinstance(p.plan(p.Desired(1), observed).action, p.FormatNode)


def test_a_restored_quorum_is_marked_and_its_lost_disks_are_replaced_as_usual() -> None:
    leader = ReplicaKey(0, "A" * 22)
    view = p.LeaderView(leader, 7, frozenset({leader}), frozenset({leader}), frozenset({leader}))
    nodes = (node(0, "A" * 22), node(1, None))
    observed = p.Observed(size=2, nodes=nodes, record=RECORD, view=view)
    desired = p.Desired(2, recovers=True)
    assert p.plan(desired, observed).action == p.MarkBootstrapped(CLUSTER)
    observed = replace(observed, is_marked=True)
    assert p.plan(desired, observed).action == p.FormatNode(1, "uid-1", CLUSTER)


def test_an_invalid_source_and_a_migration_are_rejected() -> None:
    assert "either s3 or claim" in recovering({}).desired.invalid
    migrating = resource(
        bootstrap={"recovery": {"source": SOURCE}},
        migration={"zookeeperConnect": "zk:2181"},
        clusterId=CLUSTER,
        firstNodeId=3000,
    )
    assert migrating.desired.invalid == "a migration cannot begin with a backup"
    assert not recovering().desired.invalid


# --- the objects ----------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [SOURCE, CLAIM])
def test_the_job_is_restricted_and_restores_to_the_first_volume(source: Object) -> None:
    quorum = recovering(source, toTime="2026-11-21T03:35:22Z")
    made = recovery.job(quorum, CLUSTER)
    spec = made["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert (
        not naming.selector("q").items() <= made["spec"]["template"]["metadata"]["labels"].items()
    )
    (container,) = spec["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    url = "/backups/old" if source is CLAIM else "s3://backups/old"
    assert container["args"] == [
        f"--cluster-id={CLUSTER}",
        "--directory=/var/lib/quorate/metadata",
        "--node-id=0",
        "--endpoint=CONTROLLER://q-0.lab.svc:9093",
        "--to-time=2026-11-21T03:35:22Z",
        url,
    ]
    (verifying,) = recovery.verification(quorum)["spec"]["template"]["spec"]["containers"]
    assert verifying["args"] == ["--dry-run", *container["args"][1:]]
    assert "data" not in {each["name"] for each in verifying["volumeMounts"]}
    claims = [
        each["persistentVolumeClaim"]["claimName"]
        for each in spec["volumes"]
        if "persistentVolumeClaim" in each
    ]
    assert claims == ["data-q-0", *(["backups"] if source is CLAIM else [])]
    claim = recovery.claim(quorum)
    assert claim["metadata"]["name"] == "data-q-0"
    assert naming.selector("q").items() <= claim["metadata"]["labels"].items()
    assert claim["spec"]["resources"]["requests"]["storage"] == "10Gi"


def test_a_kafka_listener_is_an_endpoint() -> None:
    quorum = resource(
        bootstrap={"recovery": {"source": SOURCE, "toOffset": 0}},
        kafkaListener={"enabled": True},
        firstNodeId=7,
    )
    args = recovery.job(quorum, CLUSTER)["spec"]["template"]["spec"]["containers"][0]["args"]
    assert args[2:5] == [
        "--node-id=7",
        "--endpoint=CONTROLLER://q-0.lab.svc:9093",
        "--endpoint=KAFKA://q-0.lab.svc:9094",
    ]
    assert "--to-offset=0" in args


def test_a_repeated_job_leaves_a_restored_disk_alone(tmp_path: Path) -> None:
    assert not pod.is_restored(tmp_path / "missing", CLUSTER)
    (tmp_path / "meta.properties").write_text(f"version=1\ncluster.id={CLUSTER}\nnode.id=0\n")
    assert pod.is_restored(tmp_path, CLUSTER)
    assert not pod.is_restored(tmp_path, "another")


# --- with an API server ---------------------------------------------------------------------------


async def step(kube: Kube) -> tuple[p.OperatorPlan, Object]:
    """Observe, plan, act; the plan and the condition Ready."""
    found = kube.get("Quorum", "lab", "q")
    assert found is not None
    quorum = QuorumResource.parse(found)
    seen = await Observer(kube).observe(quorum, None)
    planned = p.plan(quorum.desired, seen.observed)
    if planned.action is not None:

        async def leads() -> bool:
            return True

        await Actor(kube, leads).act(planned.action, quorum, seen, None)
    made = status.build(quorum, seen, planned)
    return planned, next(each for each in made["conditions"] if each["type"] == "Ready")


async def test_the_objects_of_a_recovery(api: tuple[Store, Kube]) -> None:
    store, kube = api
    created(kube, tls={"enabled": False}, bootstrap={"recovery": {"source": SOURCE}})
    _, ready = await step(kube)
    assert (ready["reason"], ready["message"]) == ("NotAllowed", "Secret/keys does not exist")
    where = path("Secret", "lab")
    secret = {"metadata": {"name": "keys", "labels": {naming.USABLE_LABEL: "q"}}}
    store.handle("POST", where, secret)
    names = [type((await step(kube))[0].action).__name__ for _ in range(2)]
    assert names == ["ApplyObjects", "VerifyBackup"]
    proof = store.objects[path("Job", "lab", VERIFY)]
    proof["status"] = {"conditions": [{"type": "Failed", "status": "True", "message": "damaged"}]}
    planned, ready = await step(kube)
    assert (planned.action, ready["reason"]) == (None, "RecoveryFailed")
    assert "damaged; nothing was created" in ready["message"]
    for kind in ("ConfigMap", "PersistentVolumeClaim", "StatefulSet"):
        assert not store.items(path(kind, "lab"))
    proof["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    names = [type((await step(kube))[0].action).__name__ for _ in range(2)]
    assert names == ["CreateRecord", "StartRestore"]
    claim = store.objects[path("PersistentVolumeClaim", "lab", "data-q-0")]
    job = store.objects[path("Job", "lab", JOB)]
    record = store.objects[path("ConfigMap", "lab", "q-bootstrap")]
    cluster_id = record["data"]["clusterId"]
    assert f"--cluster-id={cluster_id}" in job["spec"]["template"]["spec"]["containers"][0]["args"]
    planned, ready = await step(kube)
    assert (planned.action, ready["reason"]) == (None, "Recovering")

    owner = [{"controller": True, "uid": job["metadata"]["uid"]}]
    labels = job["spec"]["template"]["metadata"]["labels"]
    ended = {"exitCode": 1, "message": "quorate: error: the backup is damaged"}
    states = [{"name": "restore", "state": {"terminated": ended}}]
    body = {
        "metadata": {"name": "q-restore-x", "ownerReferences": owner, "labels": labels},
        "status": {"phase": "Failed", "containerStatuses": states},
    }
    store.handle("POST", path("Pod", "lab"), body)
    job["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
    planned, ready = await step(kube)
    assert (planned.action, ready["reason"]) == (None, "RecoveryFailed")
    assert "the backup is damaged" in ready["message"]
    assert path("StatefulSet", "lab", "q") not in store.objects

    store.remove(path("Job", "lab", JOB))
    planned, _ = await step(kube)
    assert planned.action == p.StartRestore(cluster_id), "deleting the Job repeats it"
    assert store.objects[path("PersistentVolumeClaim", "lab", "data-q-0")] == claim
    again = store.objects[path("Job", "lab", JOB)]
    again["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    planned, _ = await step(kube)
    assert planned.action == p.CreateStatefulSet(3)


async def test_a_foreign_volume_claim_or_job_is_not_used(api: tuple[Store, Kube]) -> None:
    store, kube = api
    created(kube, tls={"enabled": False}, bootstrap={"recovery": {"source": CLAIM}})
    labels = {naming.USABLE_LABEL: "q"}
    where = path("PersistentVolumeClaim", "lab")
    store.handle("POST", where, {"metadata": {"name": "backups", "labels": labels}})
    store.handle("POST", where, {"metadata": {"name": "data-q-0"}})
    store.handle("POST", path("Job", "lab"), {"metadata": {"name": JOB}})
    _, ready = await step(kube)
    assert ready["reason"] == "Conflict"
    assert f"Job/{JOB}" in ready["message"]
    assert "data-q-0" in ready["message"]
    assert path("StatefulSet", "lab", "q") not in store.objects
