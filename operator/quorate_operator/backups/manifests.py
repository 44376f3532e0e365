"""Builds the Deployment or the CronJob of a QuorumBackup.

Both depend only on the QuorumBackup and the Quorum, and carry a digest of themselves. Pods satisfy
the restricted Pod Security Standard and have no service account token. At most one runs at a time,
because only one process may write an archive.
"""

from __future__ import annotations

from quorate_operator import manifests, naming
from quorate_operator.backups.resource import (
    BACKUP_LABEL,
    MODE_LABEL,
    BackupResource,
)
from quorate_operator.naming import HTTP_PORT, Object
from quorate_operator.resource import QuorumResource

COMPONENT = "backup"
REPORT = "/dev/termination-log"
DEADLINE_S = 6 * 60 * 60
"""The longest time of a scheduled run: one that hangs would keep further ones from running."""


def selector(backup: BackupResource) -> dict[str, str]:
    """The labels that select the pods of a QuorumBackup."""
    return {
        naming.NAME_LABEL: "quorate",
        naming.INSTANCE_LABEL: backup.quorum_name,
        naming.COMPONENT_LABEL: COMPONENT,
        BACKUP_LABEL: backup.name,
    }


def selector_text(backup: BackupResource) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(selector(backup).items()))


def workload(backup: BackupResource, quorum: QuorumResource) -> Object:
    """The object that runs the backup."""
    kind, name = backup.workload
    labels = {**selector(backup), naming.MANAGED_LABEL: "quorate-operator"}
    pods = {**labels, MODE_LABEL: backup.mode, manifests.CLIENT_LABEL: "true"}
    template = {"metadata": {"labels": pods}, "spec": _pod_spec(backup, quorum)}
    made: Object = {
        "apiVersion": "batch/v1" if backup.schedule else "apps/v1",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": backup.namespace,
            "labels": labels,
            "ownerReferences": [backup.owner],
        },
        "spec": _cron_job(backup, template) if backup.schedule else _deployment(backup, template),
    }
    stamp = manifests.digest(made)
    made["metadata"]["annotations"] = {naming.HASH_ANNOTATION: stamp}
    return made


def _deployment(backup: BackupResource, template: Object) -> Object:
    return {
        "replicas": 0 if backup.is_suspended else 1,
        "strategy": {"type": "Recreate"},
        "revisionHistoryLimit": 2,
        "selector": {"matchLabels": {**selector(backup), MODE_LABEL: backup.mode}},
        "template": template,
    }


def _cron_job(backup: BackupResource, template: Object) -> Object:
    return {
        "schedule": backup.schedule,
        "timeZone": "Etc/UTC",
        "suspend": backup.is_suspended,
        "concurrencyPolicy": "Forbid",
        "successfulJobsHistoryLimit": 1,
        "failedJobsHistoryLimit": 1,
        "jobTemplate": {
            "metadata": {"labels": template["metadata"]["labels"]},
            "spec": {
                "backoffLimit": 2,
                "activeDeadlineSeconds": DEADLINE_S,
                "template": template,
            },
        },
    }


def _pod_spec(backup: BackupResource, quorum: QuorumResource) -> Object:
    volumes: list[Object] = [{"name": "tmp", "emptyDir": {}}]
    mounts: list[Object] = [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 - inside the pod
    if quorum.is_tls:
        source = {"secretName": backup.client_secret, "defaultMode": 0o440}
        volumes.append({"name": "tls", "secret": source})
        mounts.append({"name": "tls", "mountPath": naming.TLS_PATH, "readOnly": True})
    volumes += backup.destination.volumes()
    mounts += backup.destination.mounts()
    template = backup.pod_template
    spec: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never" if backup.schedule else "Always",
        "terminationGracePeriodSeconds": 30,
        "securityContext": manifests.pod_security(quorum.part("podTemplate")),
        "containers": [_container(backup, quorum, mounts)],
        "volumes": volumes,
    }
    spec |= {name: template[name] for name in ("nodeSelector", "tolerations") if template.get(name)}
    secrets = quorum.part("podTemplate").get("imagePullSecrets")
    return spec | ({"imagePullSecrets": secrets} if secrets else {})


def _container(backup: BackupResource, quorum: QuorumResource, mounts: list[Object]) -> Object:
    container: Object = {
        "name": "backup",
        "image": quorum.image,
        "imagePullPolicy": quorum.spec.get("imagePullPolicy", "IfNotPresent"),
        "command": ["python", "-m", "quorate_operator.pod", "backup"],
        "args": _arguments(backup),
        "env": _environment(backup, quorum),
        # A process that fails ends with one line, which the status repeats.
        "terminationMessagePath": REPORT,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": backup.pod_template.get("resources") or {},
        "securityContext": manifests.container_security(),
        "volumeMounts": mounts,
    }
    if not backup.schedule:
        container["ports"] = [{"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP"}]
        container["livenessProbe"] = manifests.probe("/healthz", period_s=10, failures=6)
        container["readinessProbe"] = manifests.probe("/readyz", period_s=5, failures=2)
    return container


def _arguments(backup: BackupResource) -> list[str]:
    found = [f"--to={backup.destination.url}"]
    if backup.keep_days is not None:
        found.append(f"--keep-days={backup.keep_days}")
    if backup.schedule:
        return [*found, f"--report={REPORT}"]
    more = [f"--interval={backup.interval_s}", f"--http-listener=:{HTTP_PORT}"]
    return [*found, "--follow", *more]


def _environment(backup: BackupResource, quorum: QuorumResource) -> list[Object]:
    servers = ",".join(naming.bootstrap_servers(quorum.name, quorum.namespace))
    return [
        {"name": "QUORATE_POD_TLS", "value": "true" if quorum.is_tls else "false"},
        {"name": "QUORATE_POD_BOOTSTRAP", "value": servers},
        *backup.destination.variables(),
    ]
