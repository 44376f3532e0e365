"""A backup under load, the loss of every disk, and a new Quorum that begins with the backup."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.cluster import figures
from tests.cluster.lab import KEY, Lab, Object
from tests.tools.documents import block

pytestmark = pytest.mark.timeout(900)

SURE_S = 10.0
"""What was acknowledged this long before the loss must be in the backup."""
PAUSE_S = 0.02
APPENDING = f"""
import asyncio, json, os, time
from pathlib import Path
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.tls import TlsConfig
async def main():
    root = Path('/tls')
    tls = TlsConfig(root / 'tls.crt', root / 'tls.key', root / 'ca.crt')
    async with QuorumClient(os.environ['BOOTSTRAP'].split(','), tls=tls) as client:
        for number in range(1_000_000):
            value = f'value-{{number}}'
            offset = await client.append_value(value.encode())
            print(json.dumps([time.time(), offset, value]), flush=True)
            await asyncio.sleep({PAUSE_S})
asyncio.run(main())
"""
READING = f"""
import asyncio, json
from pathlib import Path
from quorate.rpc.client.quorum_client import QuorumClient
from quorate.rpc.tls import TlsConfig
async def main():
    root = Path('/etc/quorate/tls')
    tls = TlsConfig(root / 'node-0.crt', Path('{KEY}'), root / 'ca.crt')
    async with QuorumClient(['SERVER'], tls=tls) as client:
        records = [record async for record in client.read(0, metadata=False)]
    found = {{record.offset: bytes(record.value or b'').decode() for record in records}}
    print(json.dumps(found))
asyncio.run(main())
"""


def apply(lab: Lab, kind: str, name: str, spec: Object, api: str = "quorate.dev/v1alpha1") -> None:
    made = {"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": spec}
    lab.kubectl("apply", "-f", "-", text=json.dumps(made))


def appending_pod(lab: Lab) -> None:
    """A pod that appends one record after the other, and prints each that is acknowledged."""
    hosts = [f"{lab.name}-{n}.{lab.namespace}.svc:9093" for n in range(3)]
    secret = {"secretName": f"{lab.name}-client-tls", "defaultMode": 0o444}
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {
        "name": "appends",
        "image": lab.images.controller,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-c", APPENDING],
        "env": [{"name": "BOOTSTRAP", "value": ",".join(hosts)}],
        "volumeMounts": [{"name": "tls", "mountPath": "/tls"}],
        "securityContext": security,
    }
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "tls", "secret": secret}],
    }
    labels = {"quorate.dev/client": "true"}
    metadata = {"name": "appends", "labels": labels}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    lab.kubectl("apply", "-f", "-", text=json.dumps(pod))


def acknowledged(lab: Lab) -> list[tuple[float, int, str]]:
    """Times, offsets and values."""
    lines = lab.kubectl("logs", "appends", check=False).splitlines()
    return [tuple(json.loads(line)) for line in lines if line.startswith("[")]


def condition(lab: Lab, kind: str, name: str, which: str = "Ready") -> Object:
    status: Object = lab.get(kind, name).get("status") or {}
    return lab.condition(which, status)


def usable_by(lab: Lab, quorum: str) -> None:
    label = f"quorate.dev/usable-by={quorum}"
    lab.kubectl("label", "pvc", "backups", label, "--overwrite")


def recovering(spec: Object, folder: str) -> Object:
    """The spec of a new Quorum that begins with the backup in a folder of the claim."""
    kept = {name: spec[name] for name in ("image", "imagePullPolicy", "storage", "podTemplate")}
    source = {"claim": {"name": "backups", "path": folder}}
    return {**kept, "replicas": 3, "bootstrap": {"recovery": {"source": source}}}


def drill_now(lab: Lab) -> None:
    """Restore the backup beside the Quorum, which goes on."""
    lab.paste(block("docs/backup.md", "drill-now"), {"meta-drill": "all-drill"})
    lab.until(
        "the drill succeeds",
        lambda: condition(lab, "quorumbackup", "all", "Drilled").get("status") == "True",
    )
    status = lab.get("quorumbackup", "all")["status"]
    assert 0 < status["lastDrill"]["endOffset"] <= status["lastOffset"]


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
    pods = [f"{lab.name}-{n}" for n in range(3)]
    lab.kubectl("delete", "pvc", *(f"data-{pod}" for pod in pods), "--wait=false")
    lab.kubectl("delete", "pod", *pods, "--force", "--grace-period=0")
    known = acknowledged(lab)
    lab.kubectl("delete", "quorumbackup", "all")
    lab.kubectl("delete", "quorum", lab.name)
    lab.kubectl("delete", "pod", "appends", "--force", "--grace-period=0")
    sure = {offset: value for at, offset, value in known if at < lost_at - SURE_S}
    assert sure

    usable_by(lab, "broken")
    apply(lab, "Quorum", "broken", recovering(spec, "nothing"))
    lab.until(
        "the missing backup is reported",
        lambda: "contains no backup" in condition(lab, "quorum", "broken").get("message", ""),
    )
    assert not lab.exists("statefulset", "broken")
    assert not lab.exists("pvc", "data-broken-0"), "it was rejected before anything was created"
    lab.kubectl("delete", "quorum", "broken")

    usable_by(lab, "restored")
    began = time.monotonic()
    apply(lab, "Quorum", "restored", recovering(spec, lab.name))
    restored = Lab(lab.namespace, lab.images, "restored")
    restored.until_ready(3)
    figures.add("restore into a new Quorum of 3", time.monotonic() - began)
    server = f"restored-0.{lab.namespace}.svc:9093"
    text = restored.kubectl_exec(0, "python", "-c", READING.replace("SERVER", server))
    found: dict[str, Any] = json.loads(text)
    missing = {offset for offset, value in sure.items() if found.get(str(offset)) != value}
    assert not missing, f"{len(missing)} of {len(sure)}, from offset {min(missing)}"
    late = sum(at >= lost_at - SURE_S and str(offset) in found for at, offset, _ in known)
    print(f"lost 0 of {len(sure)} acknowledged {SURE_S} s before the loss; {late} later ones")
    assert restored.status["clusterId"] != ""
