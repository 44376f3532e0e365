"""Restore drills: the CronJob, what its pod runs, and what the status says of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from quorate_operator import drill as drill_module
from quorate_operator.backups import plan, status
from quorate_operator.backups.manifests import drill, workload
from quorate_operator.backups.plan import BackupObserved, BackupPlan, plan_backup
from quorate_operator.backups.resource import BACKUP_LABEL, BackupResource
from quorate_operator.kube.api import Kube, path
from quorate_operator.kube.job_state import JobRun
from quorate_operator.objects.resource import QuorumResource

from tests.unit.backup.backup_support import WrittenLog, back_up
from tests.unit.operator.fake_api import Object, Store
from tests.unit.operator.test_quorum_backup import CLAIM, NOW, QUORUM, Lab, resource

WEEKLY = {"schedule": "0 4 * * 6"}


def drill_pod(backup: BackupResource) -> Object:
    found: Object = drill(backup, QUORUM)["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return found


# --- the objects ----------------------------------------------------------------------------------


def test_a_drill_is_restricted_and_cannot_reach_the_quorum() -> None:
    resources = {"limits": {"ephemeral-storage": "2Gi"}}
    wanted = {**WEEKLY, "resources": resources, "volumeSize": "1Gi"}
    backup = resource(destination=CLAIM, drill=wanted)
    made = drill(backup, QUORUM)
    assert (made["kind"], made["metadata"]["name"]) == ("CronJob", "b-drill")
    assert (made["spec"]["schedule"], made["spec"]["concurrencyPolicy"]) == ("0 4 * * 6", "Forbid")
    labels = made["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"]
    assert "quorate.dev/client" not in labels, "the network policy lets clients in"
    chosen = workload(backup, QUORUM)["spec"]["selector"]["matchLabels"]
    assert not chosen.items() <= labels.items(), "the Deployment does not own it"
    spec = drill_pod(backup)
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    (container,) = spec["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["resources"] == resources
    assert container["args"] == [
        "--directory=/drill",
        "--report=/dev/termination-log",
        "/backups/q",
    ]
    mounts = {each["name"]: each for each in container["volumeMounts"]}
    assert mounts["backups"]["readOnly"] is True
    volumes = {each["name"]: each for each in spec["volumes"]}
    assert volumes["drill"] == {"name": "drill", "emptyDir": {"sizeLimit": "1Gi"}}
    assert set(volumes) == {"tmp", "drill", "backups"}, "no certificate"


def test_a_suspended_backup_runs_no_drills() -> None:
    assert drill(resource(drill=WEEKLY, suspend=True), QUORUM)["spec"]["suspend"] is True


def test_the_drills_come_after_the_backup_and_go_with_their_schedule() -> None:
    backup = resource(drill=WEEKLY)
    made = workload(backup, QUORUM)
    observed = BackupObserved(QUORUM, workload=made)
    assert plan_backup(backup, BackupObserved(QUORUM)).action == plan.PutWorkload(made)
    wanted = drill(backup, QUORUM)
    assert plan_backup(backup, observed).action == plan.PutWorkload(wanted)
    observed = BackupObserved(QUORUM, workload=made, drill=wanted)
    assert plan_backup(backup, observed) == BackupPlan()
    other = resource(drill={"schedule": "@daily"})
    assert plan_backup(other, observed).action == plan.PutWorkload(drill(other, QUORUM))
    assert plan_backup(resource(), observed).action == plan.DeleteWorkload("CronJob", "b-drill")


# --- the pod --------------------------------------------------------------------------------------


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Path]:
    """A backup that ends at offset 40."""
    log = WrittenLog.begun(tmp_path / "replica")
    log.application(37)
    back_up(log, tmp_path / "archive")
    yield tmp_path / "archive"
    log.close()


def run_drill(folder: Path, archive: Path) -> subprocess.CompletedProcess[str]:
    """Run what the pod of a drill runs, in a folder."""
    (container,) = drill_pod(resource(destination=CLAIM, drill=WEEKLY))["containers"]
    replaced = {
        "--directory=/drill": f"--directory={folder}",
        "--report=/dev/termination-log": f"--report={folder / 'report'}",
        "/backups/q": str(archive),
    }
    folder.mkdir()
    given = [replaced[each] for each in container["args"]]
    command = [sys.executable, *container["command"][1:], *given]
    environment = {**os.environ, "QUORATE_POD_NAME": "b-drill-1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


def test_a_drill_restores_and_opens_the_backup(tmp_path: Path, archive: Path) -> None:
    before = {path: path.read_bytes() for path in archive.rglob("*") if path.is_file()}
    done = run_drill(tmp_path / "drill", archive)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "drill" / "report").read_text())
    assert report["endOffset"] == 40
    assert 0 < report["seconds"] < 60
    assert (tmp_path / "drill" / "metadata" / "meta.properties").exists()
    assert {path: path.read_bytes() for path in archive.rglob("*") if path.is_file()} == before


def test_a_drill_of_a_damaged_backup_says_why_in_its_last_line(
    tmp_path: Path, archive: Path
) -> None:
    segment = next((archive / "log").iterdir())
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    done = run_drill(tmp_path / "drill", archive)
    assert done.returncode == 1
    assert "the backup cannot be restored" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "drill" / "report").exists(), "the message is the log's last line"


def test_a_drill_fails_if_what_it_did_not_need_is_damaged(tmp_path: Path) -> None:
    log = WrittenLog.begun(tmp_path / "replica")
    back_up(log, tmp_path / "archive")
    log.application(2)
    log.compact()
    back_up(log, tmp_path / "archive")
    log.close()
    next((tmp_path / "archive" / "log").iterdir()).unlink()
    done = run_drill(tmp_path / "drill", tmp_path / "archive")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "the newest state was restored, but the backup is damaged: log/" in last
    assert not (tmp_path / "drill" / "report").exists()


def test_a_command_that_a_signal_ends_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    killed = (sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    monkeypatch.setattr(drill_module, "COMMAND", killed)
    before = signal.getsignal(signal.SIGTERM)
    try:
        given = [f"--directory={tmp_path}", f"--report={tmp_path / 'report'}", "/backups/q"]
        assert drill_module.main(given) == 1
    finally:
        signal.signal(signal.SIGTERM, before)
    said = "quorate: error: `quorate restore` was ended by signal 9\n"
    assert capsys.readouterr().err == said
    assert not (tmp_path / "report").exists()


# --- the status -----------------------------------------------------------------------------------


def drilled(backup: BackupResource, *drills: JobRun) -> tuple[Object, Object | None]:
    """The status, and its condition Drilled."""
    made = status.build(backup, BackupObserved(QUORUM, drills=drills), BackupPlan(), NOW)
    conditions = {each["type"]: each for each in made["conditions"]}
    return made, conditions.get("Drilled")


def test_the_condition_is_that_of_the_last_drill() -> None:
    assert drilled(resource())[1] is None
    backup = resource(drill=WEEKLY)
    _, found = drilled(backup)
    assert found is not None
    assert (found["status"], found["reason"]) == ("Unknown", "NoRunYet")
    at, message = "2026-11-26T08:00:00Z", '{"endOffset": 7, "clusterId": "c", "seconds": 3.2}'
    made, found = drilled(backup, JobRun("b-1", True, at, message))
    assert found is not None
    assert (found["status"], found["reason"]) == ("True", "DrillSucceeded")
    known = {"time": at, "endOffset": 7, "seconds": 3}
    assert made["lastDrill"] == known
    later = BackupResource("b", "lab", spec=backup.spec, status=made)
    made, _ = drilled(later, JobRun("b-1", True, at))
    assert made["lastDrill"] == known, "the pod with the message is gone"
    made, found = drilled(later, JobRun("b-2", False, at, "quorate: error: damaged"))
    assert found is not None
    assert (found["status"], found["reason"]) == ("False", "DrillFailing")
    assert found["message"] == "Job/b-2: quorate: error: damaged"
    assert made["lastDrill"] == known
    unobserved = status.unknown(later, "the server is down")
    assert [each["status"] for each in unobserved["conditions"] if each["type"] == "Drilled"] == [
        "Unknown"
    ]


@pytest.mark.parametrize(
    "message", ["[" * 4096, '{"endOffset": 1e999, "clusterId": "c", "seconds": 1}', "[]", "null"]
)
def test_an_odd_message_of_a_pod_is_none(message: str) -> None:
    at = "2026-11-26T08:00:00Z"
    run = JobRun("b-1", True, at, message)
    made, found = drilled(resource(drill=WEEKLY), run)
    assert found is not None
    assert (found["status"], made["lastDrill"]) == ("True", {"time": at})
    observed = BackupObserved(QUORUM, runs=(run,))
    made = status.build(resource(schedule="@daily"), observed, BackupPlan(), NOW)
    assert (made["lastSuccess"], made["lastOffset"]) == (at, None)


def test_a_drill_with_the_archive_of_another_cluster_is_no_success() -> None:
    quorum = replace(QUORUM, status={"clusterId": "mine"})
    at = "2026-11-26T08:00:00Z"

    def built(before: Object, *drills: JobRun, quorum: QuorumResource = quorum) -> Object:
        backup = BackupResource("b", "lab", spec=resource(drill=WEEKLY).spec, status=before)
        return status.build(backup, BackupObserved(quorum, drills=drills), BackupPlan(), NOW)

    def condition(made: Object) -> tuple[str, str, str]:
        (found,) = (each for each in made["conditions"] if each["type"] == "Drilled")
        return found["status"], found["reason"], found["message"]

    other = '{"endOffset": 7, "clusterId": "other", "seconds": 3.2}'
    made = built({}, JobRun("b-1", True, at, other))
    said = condition(made)
    assert said[:2] == ("False", "OtherCluster")
    assert said[2] == (
        "Job/b-1: the archive can be restored, but it is the backup of cluster other, and Quorum/q "
        "is cluster mine"
    )
    assert made["lastDrill"] is None
    assert ("Warning", *said[1:]) in status.news({}, made)
    gone = built(made, JobRun("b-1", True, at))
    assert condition(gone) == said, "the pod with the message is gone"
    assert gone["lastDrill"] is None
    assert condition(built(made, JobRun("b-2", True, at)))[0] == "True", "an older image"
    mine = JobRun("b-2", True, at, other.replace("other", "mine"))
    good = built(made, JobRun("b-1", True, at, other), mine)
    assert condition(good)[0] == "True"
    assert good["lastDrill"]["endOffset"] == 7
    unknown = built({}, JobRun("b-1", True, at, other), quorum=QUORUM)
    assert condition(unknown)[0] == "True", "the Quorum's cluster is not known"


async def test_drills_run_beside_a_continuous_backup(api: tuple[Store, Kube]) -> None:
    lab = Lab(*api)
    lab.want(drill=WEEKLY)
    await lab.after()
    assert lab.found("Deployment") is not None
    cron = lab.found("CronJob", "b-drill")
    assert cron is not None
    owner: Any = {"ownerReferences": [{"controller": True, "uid": cron["metadata"]["uid"]}]}
    job = lab.put("Job", "drill-now", {BACKUP_LABEL: "b"}, metadata=owner, status={})
    ended = {"exitCode": 1, "message": "quorate: error: the backup is damaged"}
    states = [{"name": "drill", "state": {"terminated": ended}}]
    uid = job["metadata"]["uid"]
    lab.pod("drill-now-x", "drill", uid, phase="Failed", containerStatuses=states)
    job["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
    said = await lab.after(30)
    found = {each["type"]: each for each in said["conditions"]}
    assert found["Drilled"]["status"] == "False"
    assert "drill-now: container drill: quorate: error: the backup" in found["Drilled"]["message"]
    assert found["SpecApplied"]["status"] == "True", "its pod is none of another mode"
    lab.want()
    said = await lab.after(1)
    assert lab.found("CronJob", "b-drill") is None
    assert "Drilled" not in {each["type"] for each in said["conditions"]}


async def test_a_foreign_cron_job_of_the_name_is_not_touched(api: tuple[Store, Kube]) -> None:
    lab = Lab(*api)
    lab.put("CronJob", "b-drill", spec={"mine": True})
    lab.want()
    await lab.after()
    assert lab.found("Deployment") is not None, "no drill is wanted"
    lab.want(drill=WEEKLY)
    assert (await lab.ready(1))[1] == "Conflict"
    found = lab.store.objects[path("CronJob", "lab", "b-drill")]
    assert found["spec"] == {"mine": True}
