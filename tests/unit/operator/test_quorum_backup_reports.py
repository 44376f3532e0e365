"""What the operator says of QuorumBackups beside their status: metrics and Events."""

from __future__ import annotations

import datetime as dt

import pytest
from prometheus_client.utils import floatToGoString
from quorate_operator.backups.resource import BACKUP_LABEL
from quorate_operator.kube.api import Kube, path
from quorate_operator.metrics import OperatorMetrics

from tests.unit.operator.fake_api import Object, Store
from tests.unit.operator.test_quorum_backup import Lab

LATER_S = 150.0
AT = "2026-11-26T08:00:00Z"


@pytest.fixture
def lab(api: tuple[Store, Kube]) -> Lab:
    return Lab(*api)


def run(lab: Lab, cron: str, name: str, mode: str, said: str, *, succeeds: bool, at: str) -> None:
    """A Job of a CronJob has ended, with these words of its pod."""
    found = lab.found("CronJob", cron)
    assert found is not None
    owner = {"ownerReferences": [{"controller": True, "uid": found["metadata"]["uid"]}]}
    kind = "Complete" if succeeds else "Failed"
    ended = {"type": kind, "status": "True", "lastTransitionTime": at}
    metadata = {**owner, "creationTimestamp": at}
    labels = {BACKUP_LABEL: "b"}
    job = lab.put("Job", name, labels, metadata=metadata, status={"conditions": [ended]})
    state = {"terminated": {"exitCode": 0 if succeeds else 1, "message": said}}
    states = [{"name": "backup", "state": state}]
    lab.pod(f"{name}-x", mode, job["metadata"]["uid"], containerStatuses=states)


def events(lab: Lab) -> list[Object]:
    return [found for where, found in lab.store.objects.items() if "/events/" in where]


async def test_a_time_that_cannot_be_read_does_not_end_the_page(lab: Lab) -> None:
    """The API server takes any year, and whoever may write a status any of its times."""
    metrics = OperatorMetrics()
    metrics.watch_backups(lab.loop.reported)
    lab.want(schedule="@daily")
    stored = lab.store.objects[path("QuorumBackup", "lab", "b")]
    stored["metadata"]["creationTimestamp"] = "0000-01-01T00:00:00Z"
    await lab.after()
    page = metrics.render().decode()
    assert "quorate_backup_condition{" in page
    assert "quorate_backup_created_timestamp_seconds{" not in page


async def test_metrics_have_conditions_times_and_offsets(lab: Lab) -> None:
    metrics = OperatorMetrics()
    metrics.watch_backups(lab.loop.reported)
    metrics.watch_claims(lab.loop._claims.states)
    lab.want(schedule="@daily", drill={"schedule": "@weekly"})
    await lab.after()
    page = metrics.render().decode()
    unknown = (
        'quorate_backup_condition{name="b",namespace="lab",status="Unknown",type="Drilled"} 1.0'
    )
    assert unknown in page
    assert "quorate_backup_end_offset{" not in page
    assert 'quorate_backup_created_timestamp_seconds{name="b",namespace="lab"}' in page
    said = '{"endOffset": 42, "clusterId": "c", "seconds": 3.7}'
    run(lab, "b-backup", "b-1", "scheduled", said, succeeds=True, at=AT)
    run(lab, "b-drill", "d-1", "drill", said, succeeds=True, at=AT)
    await lab.after(LATER_S)
    lines = metrics.render().decode().splitlines()
    labels, at = (
        '{name="b",namespace="lab"}',
        floatToGoString(dt.datetime.fromisoformat(AT).timestamp()),
    )
    for line in (
        f"quorate_backup_last_success_timestamp_seconds{labels} {at}",
        f"quorate_backup_end_offset{labels} 42.0",
        f"quorate_backup_last_drill_timestamp_seconds{labels} {at}",
        f"quorate_backup_drill_end_offset{labels} 42.0",
        f"quorate_backup_drill_seconds{labels} 3.0",
        unknown.replace("Unknown", "True"),
        'quorate_operator_holds_namespace{namespace="lab"} 1.0',
    ):
        assert line in lines
    lab.store.remove(path("QuorumBackup", "lab", "b"))
    lab.loop.changed({"metadata": {"namespace": "lab", "name": "b"}}, True)
    await lab.loop.round()
    assert 'name="b"' not in metrics.render().decode()


async def test_events_tell_of_failures_and_of_their_end(lab: Lab) -> None:
    lab.want(schedule="@daily")
    await lab.after()
    assert events(lab) == [], "nothing has happened yet"
    error = "quorate: error: the bucket is gone"
    run(lab, "b-backup", "b-1", "scheduled", error, succeeds=False, at=AT)
    await lab.after(LATER_S)
    await lab.after(LATER_S)
    (event,) = events(lab)
    about = event["involvedObject"]
    assert (about["kind"], about["name"]) == ("QuorumBackup", "b")
    assert (event["type"], event["reason"]) == ("Warning", "BackupFailing")
    assert "Job/b-1" in event["message"]
    assert "the bucket is gone" in event["message"]
    run(lab, "b-backup", "b-2", "scheduled", "", succeeds=True, at="2026-11-26T09:00:00Z")
    await lab.after(LATER_S)
    run(lab, "b-backup", "b-3", "scheduled", "", succeeds=True, at="2026-11-26T10:00:00Z")
    await lab.after(LATER_S)
    assert [(each["type"], each["reason"]) for each in events(lab)] == [
        ("Warning", "BackupFailing"),
        ("Normal", "LastRunSucceeded"),
    ]


async def test_a_suspended_backup_is_no_failure(lab: Lab) -> None:
    lab.want(schedule="@daily", suspend=True)
    await lab.after()
    await lab.after(LATER_S)
    assert events(lab) == []


async def test_a_run_soon_after_another_one_is_reported(lab: Lab) -> None:
    lab.want(schedule="@daily")
    await lab.after()
    for seconds, offset in ((10, 42), (40, 57)):
        at = f"2026-11-26T08:00:{seconds}Z"
        said = f'{{"endOffset": {offset}, "clusterId": "c"}}'
        run(lab, "b-backup", f"b-{offset}", "scheduled", said, succeeds=True, at=at)
        found = await lab.after(LATER_S)
        assert (found["lastSuccess"], found["lastOffset"]) == (at, offset)
