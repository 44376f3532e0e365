"""The custom resource QuorumBackup: its objects, the plan, the loop and what it reports."""

from __future__ import annotations

import datetime as dt
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from quorate.backup.manifest import ArchivedRun, BackupManifest
from quorate.cli.recovery.backup_health import BackupHealth
from quorate.common.config_types import Address
from quorate_operator import naming
from quorate_operator.backups import crd, plan, status
from quorate_operator.backups.loop import ASK_S, READ_S, ROUND_S, UNAVAILABLE_S, BackupLoop
from quorate_operator.backups.manifests import workload
from quorate_operator.backups.observe import parse_page
from quorate_operator.backups.plan import BackupObserved, BackupPlan, plan_backup
from quorate_operator.backups.resource import BACKUP_LABEL, BackupResource
from quorate_operator.control.claims import NamespaceClaims
from quorate_operator.crd import destination
from quorate_operator.kube.api import Kube, path
from quorate_operator.kube.job_state import JobRun
from quorate_operator.kube.lease import LeaderLease
from quorate_operator.main import LEASE_NAME
from quorate_operator.objects.resource import QuorumResource

from tests.processes import HOST, free_ports
from tests.unit.operator.fake_api import Object, RefusedError, Store, created

CHART = Path(__file__).parents[3] / "charts" / "quorate"
BUCKET = {"s3": {"url": "s3://bucket/q?endpoint_override=minio:9000", "secretName": "keys"}}
CLAIM = {"claim": {"name": "backups"}}
QUORUM = QuorumResource("q", "lab", uid="u", spec={"image": "quorate:1"})
CONDITIONS = ["Ready", "SpecApplied", "Suspended"]
NOW = dt.datetime(2026, 11, 26, 9, 0, tzinfo=dt.UTC)


def resource(**spec: Any) -> BackupResource:
    wanted = {"quorumName": "q", "destination": BUCKET, **spec}
    return BackupResource("b", "lab", uid="backup", generation=1, spec=wanted)


def pod_spec(backup: BackupResource, quorum: QuorumResource = QUORUM) -> Object:
    spec = workload(backup, quorum)["spec"]
    template = spec["jobTemplate"]["spec"]["template"] if backup.schedule else spec["template"]
    found: Object = template["spec"]
    return found


# --- the definition -------------------------------------------------------------------------------


def test_the_chart_carries_this_definition() -> None:
    found = yaml.safe_load((CHART / "crds" / "quorumbackups.quorate.dev.yaml").read_text())
    assert found == crd.definition()


@pytest.mark.parametrize(
    ("pattern", "text", "is_valid"),
    [
        (destination.S3_URL, "s3://bucket/prefix", True),
        (destination.S3_URL, "s3://bucket/a/b_c?endpoint_override=minio:9000&scheme=http", True),
        (destination.S3_URL, "s3://bucket", False),
        (destination.S3_URL, "s3://user:password@bucket/a", False),
        (destination.S3_URL, "s3://bucket/a b", False),
        (destination.S3_URL, "/etc", False),
        (crd.CRON, "*/15 * * * *", True),
        (crd.CRON, "0 3 * * MON-FRI", True),
        (crd.CRON, "@hourly", True),
        (crd.CRON, "0 3 * *", False),
        (crd.CRON, "TZ=UTC 0 3 * * *", False),
        (destination.PATH, "a/b", True),
        (destination.PATH, "../a", False),
        (destination.PATH, "a/..", False),
        (destination.PATH, "/a", False),
    ],
)
def test_patterns(pattern: str, text: str, is_valid: bool) -> None:
    assert bool(re.search(pattern, text)) == is_valid


def test_every_condition_is_described() -> None:
    assert status.__doc__ is not None
    made = status.build(resource(), BackupObserved(), BackupPlan(), NOW)
    assert [each["type"] for each in made["conditions"]] == CONDITIONS
    for name in CONDITIONS:
        assert f"{name}:" in status.__doc__


# --- the objects ----------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["", "@daily"])
@pytest.mark.parametrize("place", [BUCKET, CLAIM])
def test_pods_are_restricted_and_have_no_token(schedule: str, place: Object) -> None:
    spec = pod_spec(resource(schedule=schedule, destination=place))
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = spec["containers"]
    assert container["image"] == "quorate:1"
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert mounts["tls"] == naming.TLS_PATH
    volumes = {each["name"]: each for each in spec["volumes"]}
    assert volumes["tls"]["secret"]["secretName"] == "q-client-tls"
    assert ("backups" in mounts) == (place is CLAIM)
    keys = {each["name"] for each in container["env"] if "valueFrom" in each}
    assert keys == (set(destination.CREDENTIALS) if place is BUCKET else set())


def test_a_continuous_backup_is_one_pod_at_a_time() -> None:
    made = workload(resource(keepDays=7, intervalSeconds=2), QUORUM)
    assert (made["kind"], made["metadata"]["name"]) == ("Deployment", "b-backup")
    assert made["spec"]["replicas"] == 1
    assert made["spec"]["strategy"] == {"type": "Recreate"}
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert made["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert not naming.selector("q").items() <= labels.items(), "no Service of the Quorum is for it"
    assert labels["quorate.dev/client"] == "true"
    assert pod_spec(resource(keepDays=7, intervalSeconds=2))["containers"][0]["args"] == [
        "--to=s3://bucket/q?endpoint_override=minio:9000",
        "--keep-days=7",
        "--follow",
        "--interval=2",
        "--http-listener=:9464",
    ]
    assert workload(resource(suspend=True), QUORUM)["spec"]["replicas"] == 0


def test_a_scheduled_backup_is_a_cron_job() -> None:
    made = workload(resource(schedule="0 3 * * *", destination=CLAIM), QUORUM)
    assert (made["kind"], made["metadata"]["name"]) == ("CronJob", "b-backup")
    assert made["metadata"]["ownerReferences"][0]["uid"] == "backup"
    spec = made["spec"]
    assert (spec["schedule"], spec["concurrencyPolicy"], spec["suspend"]) == (
        "0 3 * * *",
        "Forbid",
        False,
    )
    args = pod_spec(resource(schedule="0 3 * * *", destination=CLAIM))["containers"][0]["args"]
    assert args == ["--to=/backups/q", "--report=/dev/termination-log"]


def test_without_tls_and_with_a_client_of_its_own() -> None:
    plain = QuorumResource("q", "lab", spec={"image": "i", "tls": {"enabled": False}})
    spec = pod_spec(resource(), plain)
    assert [each["name"] for each in spec["volumes"]] == ["tmp"]
    spec = pod_spec(resource(client="backup"))
    assert spec["volumes"][1]["secret"]["secretName"] == "q-client-backup-tls"


@pytest.mark.parametrize("schedule", ["", "@daily"])
def test_the_command_accepts_what_the_pod_passes(tmp_path: Path, schedule: str) -> None:
    (container,) = pod_spec(resource(schedule=schedule, keepDays=3))["containers"]
    given = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    given |= {"QUORATE_POD_BOOTSTRAP": f"{HOST}:1", "QUORATE_POD_TLS": "false"}
    (port,) = free_ports(1)
    replaced = {"--to": f"--to={tmp_path}", "--http-listener": f"--http-listener={HOST}:{port}"}
    args = [replaced.get(each.partition("=")[0], each) for each in container["args"]]
    done = subprocess.run(
        [sys.executable, *container["command"][1:], *args, "--timeout=0.3"],
        env=given,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "no leader within" in done.stderr


# --- the plan -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backup", "observed", "reason", "text"),
    [
        (resource(quorumName=""), BackupObserved(), "InvalidSpec", "quorumName"),
        (resource(destination={}), BackupObserved(), "InvalidSpec", "either s3 or claim"),
        (
            resource(destination={"claim": {"name": "c", "path": "a/../../b"}}),
            BackupObserved(QUORUM),
            "InvalidSpec",
            "leaves the volume",
        ),
        (resource(), BackupObserved(), "QuorumMissing", "Quorum/q does not exist"),
        (resource(), BackupObserved(QUORUM, forbidden=("no",)), "NotAllowed", "no"),
        (resource(), BackupObserved(QUORUM, conflicts=("taken",)), "Conflict", "taken"),
        (resource(), BackupObserved(QUORUM, other_pods=("b-1",)), "OtherModeRuns", "b-1"),
    ],
)
def test_nothing_is_changed(
    backup: BackupResource, observed: BackupObserved, reason: str, text: str
) -> None:
    planned = plan_backup(backup, observed)
    assert planned.action is None
    assert planned.reason is not None
    assert (planned.reason.value, text in planned.text) == (reason, True)
    made = status.build(backup, observed, planned, NOW)
    for condition in made["conditions"][:2]:
        assert (condition["status"], condition["reason"]) == ("False", reason)


def test_the_other_mode_ends_first() -> None:
    found = plan_backup(resource(schedule="@daily"), BackupObserved(QUORUM, has_other=True))
    assert found.action == plan.DeleteWorkload("Deployment", "b-backup")


def test_an_object_that_differs_is_applied() -> None:
    made = workload(resource(), QUORUM)
    assert plan_backup(resource(), BackupObserved(QUORUM)).action == plan.PutWorkload(made)
    assert plan_backup(resource(), BackupObserved(QUORUM, workload=made)) == BackupPlan()
    changed = plan_backup(resource(keepDays=1), BackupObserved(QUORUM, workload=made))
    assert isinstance(changed.action, plan.PutWorkload)


# --- the status -----------------------------------------------------------------------------------


def ready(backup: BackupResource, observed: BackupObserved) -> tuple[str, str, str]:
    made = status.build(backup, observed, BackupPlan(), NOW)
    found = made["conditions"][0]
    return found["status"], found["reason"], found["message"]


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ((), ("Unknown", "NoRunYet", "")),
        ((JobRun("b-1"),), ("Unknown", "NoRunYet", "Job/b-1 is the first one")),
        ((JobRun("b-1", True, "t"),), ("True", "LastRunSucceeded", "")),
        (
            (JobRun("b-1", True, "t"), JobRun("b-2", False, "t", "disk full")),
            ("False", "BackupFailing", "Job/b-2: disk full"),
        ),
        (
            (JobRun("b-1", False, "t", "disk full"), JobRun("b-2", True, "t")),
            ("True", "LastRunSucceeded", ""),
        ),
        (
            (JobRun("b-1", True, "t"), JobRun("b-2", message="no image")),
            ("False", "BackupFailing", "Job/b-2: no image"),
        ),
        ((JobRun("b-1", True, "t"), JobRun("b-2")), ("True", "LastRunSucceeded", "")),
    ],
)
def test_a_scheduled_backup_is_as_ready_as_its_last_run(
    runs: tuple[JobRun, ...], expected: tuple[str, str, str]
) -> None:
    assert ready(resource(schedule="@daily"), BackupObserved(QUORUM, runs=runs)) == expected


def test_the_last_success_stays_known() -> None:
    at = "2026-11-26T08:00:00Z"
    message = '{"endOffset": 7, "clusterId": "c"}'
    runs = (JobRun("b-1", True, at, message), JobRun("b-2", False, "later", "no"))
    backup = resource(schedule="@daily")
    made = status.build(backup, BackupObserved(QUORUM, runs=runs), BackupPlan(), NOW)
    known = {"lastSuccess": at, "lastOffset": 7, "clusterId": "c"}
    assert known.items() <= made.items()
    later = BackupResource("b", "lab", spec=backup.spec, status=made)
    again = status.build(later, BackupObserved(QUORUM, runs=runs[1:]), BackupPlan(), NOW)
    assert known.items() <= again.items()
    assert known.items() <= status.unknown(later, "the server is down").items()
    odd = (JobRun("b-1", True, at, "not JSON"),)
    made = status.build(backup, BackupObserved(QUORUM, runs=odd), BackupPlan(), NOW)
    assert (made["lastSuccess"], made["lastOffset"]) == (at, None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "null",
        '{"endOffset": "x", "clusterId": 1, "secondsSinceSuccess": 1}',
        '{"endOffset": 1, "clusterId": "c", "secondsSinceSuccess": "a", "error": null}',
    ],
)
def test_pages_that_are_no_pages(text: str) -> None:
    assert parse_page(text) is None


# --- the loop -------------------------------------------------------------------------------------


class Lab:
    """An API server with a Quorum, and the loop. port: of a pod's pages. now: the loop's clock."""

    def __init__(self, store: Store, kube: Kube) -> None:
        self.store, self.kube = store, kube
        self.now, self.port = 1000.0, 1
        self.lease = LeaderLease(kube, "lab", LEASE_NAME, "one", clock=lambda: 0.0)
        self.lease.step()
        self.mutations: list[str] = []
        self.loop = BackupLoop(
            kube,
            lambda: self.lease.is_held,
            NamespaceClaims(kube, self.lease),
            ("lab",),
            mutated=self.mutations.append,
            images=("quorate",),
            locate=lambda _: (HOST, self.port),
            clock=lambda: self.now,
        )
        self.quorum = created(kube)
        labels = {naming.USABLE_LABEL: "q"}
        self.put("Secret", "q-client-tls", labels)
        self.put("Secret", "keys", labels)
        self.put("PersistentVolumeClaim", "backups", labels)

    def put(self, kind: str, name: str, labels: Object | None = None, **more: Any) -> Object:
        metadata = {"name": name, "labels": labels or {}, **more.pop("metadata", {})}
        body = {"kind": kind, "metadata": metadata, **more}
        return self.store.handle("POST", path(kind, "lab"), body)

    def want(self, **spec: Any) -> None:
        """Create the QuorumBackup, or change its spec."""
        where = path("QuorumBackup", "lab", "b")
        found = self.store.objects.get(where)
        generation = 1 if found is None else found["metadata"]["generation"] + 1
        metadata = {"name": "b", "generation": generation}
        wanted = {"quorumName": "q", "destination": BUCKET, **spec}
        body = {**(found or {}), "spec": wanted}
        body["metadata"] = {**(found or {}).get("metadata", {}), **metadata}
        if found is None:
            self.store.handle("POST", path("QuorumBackup", "lab"), body)
        else:
            self.store.handle("PUT", where, body)
        self.loop.changed(self.store.objects[where], False)

    def found(self, kind: str, name: str = "b-backup") -> Object | None:
        return self.store.objects.get(path(kind, "lab", name))

    def pod(self, name: str, mode: str, owner: str = "", **state: Any) -> None:
        labels = {BACKUP_LABEL: "b", "quorate.dev/backup-mode": mode}
        metadata = {"ownerReferences": [{"controller": True, "uid": owner}]} if owner else {}
        self.put("Pod", name, labels, metadata=metadata, status=state)

    async def after(self, seconds: float = 0.0) -> Object:
        """Run a round some time later; the status of the QuorumBackup."""
        self.now += seconds
        await self.loop.round()
        found = self.found("QuorumBackup", "b")
        assert found is not None
        said: Object = found["status"]
        return said

    async def ready(self, seconds: float = 0.0) -> tuple[str, str, str]:
        said = await self.after(seconds)
        found = next(each for each in said["conditions"] if each["type"] == "Ready")
        return found["status"], found["reason"], found["message"]


@pytest.fixture
def lab(api: tuple[Store, Kube]) -> Lab:
    return Lab(*api)


async def test_a_continuous_backup_is_created_and_followed(lab: Lab) -> None:
    lab.want()
    assert (await lab.ready())[:2] == ("False", "PodNotRunning")
    assert lab.found("Deployment") is not None
    lab.pod("b-backup-1", "continuous", phase="Running", podIP=HOST)
    assert await lab.ready(30) == ("Unknown", "NoAnswer", "the pod does not answer")
    health = BackupHealth()
    with health.served(Address(HOST, 0)) as lab.port:
        assert await lab.ready(30) == ("False", "BackupFailing", "the first run has not finished")
        health.succeeded(BackupManifest("cluster", runs=(ArchivedRun(),)))
        said = await lab.after(30)
        assert (said["lastOffset"], said["clusterId"]) == (0, "cluster")
        assert said["observedGeneration"] == 1
        assert await lab.ready() == ("True", "BackingUp", "")
        health.failed("the bucket is gone")
        assert (await lab.ready(ASK_S - 1))[0] == "True", "it was asked a moment ago"
        assert await lab.ready(2) == ("False", "BackupFailing", "the bucket is gone")
        health.succeeded(None)
        assert (await lab.ready(30))[0] == "True"
    assert (await lab.ready(ASK_S))[:2] == ("Unknown", "NoAnswer")
    lab.store.remove(path("Pod", "lab", "b-backup-1"))
    ended = {"exitCode": 1, "message": "quorate: error: another cluster"}
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    crashed = {"name": "backup", "state": waiting, "lastState": {"terminated": ended}}
    lab.pod("b-backup-2", "continuous", phase="Running", containerStatuses=[crashed])
    found = await lab.ready(READ_S)
    assert found[:2] == ("False", "PodNotRunning")
    assert "another cluster" in found[2]
    assert (await lab.after())["lastOffset"] == 0


async def test_while_all_is_well_nothing_is_read(lab: Lab) -> None:
    lab.want()
    lab.pod("b-backup-1", "continuous", phase="Running", podIP=HOST)
    health = BackupHealth()
    with health.served(Address(HOST, 0)) as lab.port:
        health.succeeded(BackupManifest("cluster", runs=(ArchivedRun(),)))
        assert (await lab.ready())[0] == "True"
        lab.store.log.clear()
        for _ in range(12):
            health.succeeded(BackupManifest("cluster", runs=(ArchivedRun(),)))
            await lab.after(5)
        assert [each for each in lab.store.log if each[0] == "GET"] == []
        assert len(lab.store.log) <= 1, "at most one status a minute"
        await lab.after(READ_S)
        assert ("GET", path("Deployment", "lab", "b-backup")) in lab.store.log


async def test_a_schedule_replaces_the_continuous_backup(lab: Lab) -> None:
    lab.want()
    await lab.after()
    lab.pod("b-backup-1", "continuous", phase="Running")
    lab.want(schedule="@hourly", keepDays=3)
    assert (await lab.ready(1))[1] == "OtherModeRuns"
    assert lab.found("Deployment") is None
    assert lab.found("CronJob") is None
    lab.store.remove(path("Pod", "lab", "b-backup-1"))
    assert await lab.ready(30) == ("Unknown", "NoRunYet", "")
    cron = lab.found("CronJob")
    assert cron is not None
    owner = {"ownerReferences": [{"controller": True, "uid": cron["metadata"]["uid"]}]}
    job = lab.put("Job", "b-backup-7", {BACKUP_LABEL: "b"}, metadata=owner, status={})
    uid = job["metadata"]["uid"]
    ended = {"exitCode": 1, "message": "quorate: error: the bucket is gone"}
    states = [{"name": "backup", "state": {"terminated": ended}}]
    lab.pod("b-backup-7-x", "scheduled", uid, phase="Failed", containerStatuses=states)
    found = await lab.ready(30)
    assert found[:2] == ("False", "BackupFailing")
    assert "the bucket is gone" in found[2], "it fails, although the Job tries again"
    failed = {"type": "Failed", "status": "True", "message": "BackoffLimitExceeded"}
    job["status"] = {"conditions": [failed]}
    assert "the bucket is gone" in (await lab.ready(30))[2]
    lab.store.remove(path("Pod", "lab", "b-backup-7-x"))
    assert "BackoffLimitExceeded" in (await lab.ready(60))[2]
    at = "2026-11-26T08:00:00Z"
    done = {"type": "Complete", "status": "True", "lastTransitionTime": at}
    made = {**owner, "creationTimestamp": "2026-01-02T00:00:00Z"}
    state = {"conditions": [done]}
    job = lab.put("Job", "b-backup-8", {BACKUP_LABEL: "b"}, metadata=made, status=state)
    said = json.dumps({"endOffset": 42, "clusterId": "c"})
    states = [{"name": "backup", "state": {"terminated": {"exitCode": 0, "message": said}}}]
    uid = job["metadata"]["uid"]
    lab.pod("b-backup-8-x", "scheduled", uid, phase="Succeeded", containerStatuses=states)
    status_now = await lab.after(READ_S)
    assert {"lastSuccess": at, "lastOffset": 42, "clusterId": "c"}.items() <= status_now.items()
    assert (await lab.ready())[:2] == ("True", "LastRunSucceeded")


@pytest.mark.parametrize("kind", ["Secret", "PersistentVolumeClaim"])
async def test_only_what_is_labelled_for_the_quorum_is_used(lab: Lab, kind: str) -> None:
    name = "keys" if kind == "Secret" else "backups"
    where = path(kind, "lab", name)
    lab.store.objects[where]["metadata"]["labels"] = {naming.USABLE_LABEL: "another"}
    lab.want(destination=BUCKET if kind == "Secret" else CLAIM)
    text = f"{kind}/{name} needs the label quorate.dev/usable-by=q"
    assert await lab.ready() == ("False", "NotAllowed", text)
    lab.store.remove(where)
    assert await lab.ready(30) == ("False", "NotAllowed", f"{kind}/{name} does not exist")
    lab.put(kind, name, {naming.USABLE_LABEL: "q"})
    assert lab.found("Deployment") is None
    await lab.after(60)
    assert lab.found("Deployment") is not None


async def test_an_image_that_is_not_allowed_runs_no_backup(lab: Lab) -> None:
    found = lab.store.objects[path("Quorum", "lab", "q")]
    found["spec"]["image"] = "elsewhere/evil:1"
    lab.want()
    assert (await lab.ready())[1] == "NotAllowed"
    assert lab.mutations == []


async def test_a_foreign_object_is_not_touched(lab: Lab) -> None:
    lab.put("Deployment", "b-backup", spec={"mine": True})
    lab.want()
    found = await lab.ready()
    assert found[1] == "Conflict"
    assert "is not controlled by QuorumBackup b" in found[2]
    deployment = lab.found("Deployment")
    assert deployment is not None
    assert deployment["spec"] == {"mine": True}
    assert lab.mutations == []


async def test_a_change_that_is_rejected_is_shown_and_repeated(lab: Lab) -> None:
    def reject(method: str, where: str, _body: Object) -> None:
        if method == "POST" and "cronjobs" in where:
            raise RefusedError(422, "spec.schedule: Invalid value")

    lab.store.reject = reject
    lab.want(schedule="99 * * * *")
    said = await lab.after()
    found = said["conditions"][1]
    assert (found["status"], found["reason"]) == ("False", "ApplyRejected")
    assert "spec.schedule: Invalid value" in found["message"]
    lab.store.reject = lambda *_: None
    said = await lab.after(30)
    assert said["conditions"][1]["status"] == "True"


async def test_a_namespace_that_may_not_be_listed_stops_no_other(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    def reject(_method: str, where: str, _body: Object) -> None:
        if "namespaces/gone" in where:
            raise RefusedError(403, "quorumbackups is forbidden")

    lab.store.reject = reject
    lab.loop._namespaces = ("gone", "lab")
    lab.want()
    for _ in range(2):
        await lab.loop.round()
        lab.now += UNAVAILABLE_S
    assert lab.found("Deployment") is not None
    said = "cannot list the QuorumBackups of gone"
    assert caplog.text.count(said) == 1


async def test_nothing_is_changed_without_the_lease(lab: Lab) -> None:
    lab.want()
    held = lab.kube.get("Lease", "lab", LEASE_NAME)
    assert held is not None
    held["spec"]["holderIdentity"] = "another one"
    lab.kube.replace("Lease", "lab", held)
    with pytest.raises(Exception, match="no longer holds the lease"):
        await lab.loop.round()
    assert lab.found("Deployment") is None


async def test_a_failed_observation_is_unknown(lab: Lab) -> None:
    lab.want()

    def reject(method: str, where: str, _body: Object) -> None:
        if "deployments" in where:
            raise RefusedError(403, "deployments is forbidden")

    lab.store.reject = reject
    assert await lab.ready() == ("Unknown", "ObservationFailed", "deployments is forbidden")
    lab.store.reject = lambda *_: None
    assert (await lab.ready(30))[1] == "PodNotRunning"


async def test_a_cluster_without_the_definition_is_asked_rarely(lab: Lab) -> None:
    def reject(_method: str, where: str, _body: Object) -> None:
        if "quorumbackups" in where:
            raise RefusedError(404, "the server could not find the requested resource")

    lab.store.reject = reject
    await lab.loop.round()
    lab.store.log.clear()
    for _ in range(8):
        lab.now += ROUND_S
        await lab.loop.round()
    assert lab.store.log == []
    lab.store.reject = lambda *_: None
    lab.now += UNAVAILABLE_S
    await lab.loop.round()
    assert ("GET", path("QuorumBackup", "lab")) in lab.store.log
