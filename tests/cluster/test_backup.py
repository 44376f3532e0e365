"""A backup under load, the loss of every disk, and a new Quorum that begins with the backup."""

from __future__ import annotations

import time

import pytest

from tests.cluster import figures
from tests.cluster.archives import (
    acknowledged,
    appending_pod,
    apply,
    condition,
    drill_now,
    lose_all,
    recover,
    values,
)
from tests.cluster.lab import Lab, Object
from tests.tools.documents import block

pytestmark = pytest.mark.timeout(900)

SURE_S = 10.0
"""What was acknowledged this long before the loss must be in the backup."""


def usable_by(lab: Lab, quorum: str) -> None:
    label = f"quorate.dev/usable-by={quorum}"
    lab.kubectl("label", "pvc", "backups", label, "--overwrite")


def folder(name: str) -> Object:
    """The backup in a folder of the claim, for a recovery."""
    return {"source": {"claim": {"name": "backups", "path": name}}}


def test_everything_acknowledged_before_the_loss_of_all_disks_is_restored(lab: Lab) -> None:
    lab.install("operator.backups=true")
    lab.until_ready(3)
    spec = lab.quorum["spec"]
    size = {"requests": {"storage": "128Mi"}}
    volume = {"accessModes": ["ReadWriteOnce"], "resources": size}
    apply(lab, "PersistentVolumeClaim", "backups", volume, "v1")
    backup = {
        "quorumName": lab.name,
        "destination": {"claim": {"name": "backups"}},
        "intervalSeconds": 1,
        "keepDays": 7,
        "drill": {"schedule": "0 4 1 1 *", "volumeSize": "256Mi"},
    }
    apply(lab, "QuorumBackup", "all", backup)
    lab.until(
        "the claim is not labelled",
        lambda: condition(lab, "quorumbackup", "all").get("reason") == "NotAllowed",
    )
    assert not lab.exists("deployment", "all-backup")
    usable_by(lab, lab.name)
    appending_pod(lab)
    lab.until("it backs up", lambda: condition(lab, "quorumbackup", "all").get("status") == "True")
    assert lab.get("quorumbackup", "all")["status"]["lastOffset"] > 0
    columns = lab.paste(block("docs/backup.md", "kubectl get")).split()
    assert columns[1:6] == ["QUORUM", "SCHEDULE", "READY", "LASTSUCCESS", "LASTOFFSET"]
    drill_now(lab)
    began = time.time()
    lab.until("it writes", lambda: acknowledged(lab) and time.time() - began > SURE_S + 5)

    lost_at = time.time()
    known = lose_all(lab)
    sure = {offset: value for at, offset, value in known if at < lost_at - SURE_S}
    assert sure

    usable_by(lab, "broken")
    recover(lab, spec, "broken", folder("nothing"))
    lab.until(
        "the missing backup is reported",
        lambda: "contains no backup" in condition(lab, "quorum", "broken").get("message", ""),
    )
    assert not lab.exists("statefulset", "broken")
    assert not lab.exists("pvc", "data-broken-0"), "it was rejected before anything was created"
    lab.kubectl("delete", "quorum", "broken")

    usable_by(lab, "restored")
    began = time.monotonic()
    restored = recover(lab, spec, "restored", folder(lab.name))
    restored.until_ready(3)
    figures.add("restore into a new Quorum of 3", time.monotonic() - began)
    found = values(restored)
    missing = {offset for offset, value in sure.items() if found.get(offset) != value}
    assert not missing, f"{len(missing)} of {len(sure)}, from offset {min(missing)}"
    late = sum(at >= lost_at - SURE_S and offset in found for at, offset, _ in known)
    print(f"lost 0 of {len(sure)} acknowledged {SURE_S} s before the loss; {late} later ones")
    assert restored.status["clusterId"] != ""
