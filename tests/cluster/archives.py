"""Backups of a Quorum whose writer tells what is in its log, and the loss of the Quorum."""

from __future__ import annotations

import json
from typing import Any

from tests.cluster.lab import KEY, Lab, Object
from tests.tools.documents import block

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


def drill_now(lab: Lab) -> None:
    """Restore the backup beside the Quorum, which goes on."""
    lab.paste(block("docs/backup.md", "drill-now"), {"meta-drill": "all-drill"})
    lab.kubectl("wait", "--for=condition=complete", "job/drill-now", "--timeout=240s")
    # The operator looks at Jobs every two minutes, and at once if the spec has changed.
    spec = {"drill": {"volumeSize": "300Mi"}}
    lab.kubectl("patch", "quorumbackup", "all", "--type=merge", "-p", json.dumps({"spec": spec}))
    lab.until(
        "the drill succeeds",
        lambda: condition(lab, "quorumbackup", "all", "Drilled").get("status") == "True",
    )
    status = lab.get("quorumbackup", "all")["status"]
    assert 0 < status["lastDrill"]["endOffset"] <= status["lastOffset"]


def recover(lab: Lab, spec: Object, name: str, recovery: Object) -> Lab:
    """A new Quorum of 3 that begins with a backup. spec: that of the earlier one."""
    kept = {part: spec[part] for part in ("image", "imagePullPolicy", "storage", "podTemplate")}
    apply(lab, "Quorum", name, {**kept, "replicas": 3, "bootstrap": {"recovery": recovery}})
    return Lab(lab.namespace, lab.images, name)


def lose_all(lab: Lab) -> list[tuple[float, int, str]]:
    """Every disk is lost, then the Quorum is deleted, with its writer; what was acknowledged."""
    pods = [f"{lab.name}-{n}" for n in range(3)]
    at_once = ("--force", "--grace-period=0")
    lab.kubectl("delete", "pvc", *(f"data-{pod}" for pod in pods), "--wait=false")
    lab.kubectl("delete", "pod", *pods, *at_once)
    known = acknowledged(lab)
    lab.kubectl("delete", "quorumbackup", "all")
    lab.kubectl("delete", "quorum", lab.name)
    lab.kubectl("delete", "pod", "appends", *at_once)
    return known


def values(lab: Lab) -> dict[int, str]:
    """The records of an application in its log, by offset, read linearizably."""
    server = f"{lab.name}-0.{lab.namespace}.svc:9093"
    text = lab.kubectl_exec(0, "python", "-c", READING.replace("SERVER", server))
    found: dict[str, Any] = json.loads(text)
    return {int(offset): str(value) for offset, value in found.items()}
