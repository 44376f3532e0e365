"""Builds the Deployment or the CronJob of a QuorumBackup, and the CronJob of its restore drills.

All depend only on the QuorumBackup and the Quorum, and carry a digest of themselves. Pods satisfy
the restricted Pod Security Standard and have no service account token. At most one backup runs at a
time, because only one process may write an archive. A drill only reads it, and has no access to the
Quorum.
"""

from __future__ import annotations

from quorate_operator import naming
from quorate_operator.backups.resource import (
    BACKUP_LABEL,
    DRILL,
    MODE_LABEL,
    BackupResource,
)
from quorate_operator.naming import HTTP_PORT, Object
from quorate_operator.objects import manifests
from quorate_operator.objects.resource import QuorumResource

COMPONENT = "backup"
DRILL_COMPONENT = "backup-drill"
BACKUP = ("python", "-m", "quorate_operator.pod", "backup")
DRILLING = ("python", "-m", "quorate_operator.drill")
DRILL_PATH = "/drill"
DRILL_VOLUME = "drill"
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
    """A selector of all objects of a QuorumBackup, those of drills too."""
    return f"{BACKUP_LABEL}={backup.name}"


def workload(backup: BackupResource, quorum: QuorumResource) -> Object:
    """The object that runs the backup."""
    kind, name = backup.workload
    labels = {**selector(backup), naming.MANAGED_LABEL: "quorate-operator"}
    pods = {**labels, MODE_LABEL: backup.mode, manifests.CLIENT_LABEL: "true"}
    template = {"metadata": {"labels": pods}, "spec": _backup_pod(backup, quorum)}
    if backup.schedule:
        spec = _cron_job(backup, backup.schedule, template)
    else:
        spec = _deployment(backup, template)
    return _stamped(backup, kind, name, labels, spec)


def drill(backup: BackupResource, quorum: QuorumResource) -> Object:
    """The CronJob that restores the backup, to try it."""
    kind, name = backup.drill_job
    labels = {**selector(backup), naming.MANAGED_LABEL: "quorate-operator"}
    labels[naming.COMPONENT_LABEL] = DRILL_COMPONENT
    template = {
        "metadata": {"labels": {**labels, MODE_LABEL: DRILL}},
        "spec": _drill_pod(backup, quorum),
    }
    spec = _cron_job(backup, str(backup.drill.get("schedule")), template)
    return _stamped(backup, kind, name, labels, spec)


def _stamped(
    backup: BackupResource, kind: str, name: str, labels: dict[str, str], spec: Object
) -> Object:
    made: Object = {
        "apiVersion": "batch/v1" if kind == "CronJob" else "apps/v1",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": backup.namespace,
            "labels": labels,
            "ownerReferences": [backup.owner],
        },
        "spec": spec,
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


def _cron_job(backup: BackupResource, schedule: str, template: Object) -> Object:
    return {
        "schedule": schedule,
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


def _backup_pod(backup: BackupResource, quorum: QuorumResource) -> Object:
    volumes: list[Object] = []
    mounts: list[Object] = []
    if quorum.is_tls:
        source = {"secretName": backup.client_secret, "defaultMode": 0o440}
        volumes.append({"name": "tls", "secret": source})
        mounts.append({"name": "tls", "mountPath": naming.TLS_PATH, "readOnly": True})
    container = {
        **_container(quorum, "backup", BACKUP, _arguments(backup), _environment(backup, quorum)),
        "resources": backup.pod_template.get("resources") or {},
    }
    if not backup.schedule:
        container["ports"] = [{"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP"}]
        container["livenessProbe"] = manifests.probe("/healthz", period_s=10, failures=6)
        container["readinessProbe"] = manifests.probe("/readyz", period_s=5, failures=2)
    container["volumeMounts"] = [*mounts, *backup.destination.mounts()]
    restart = "Never" if backup.schedule else "Always"
    return _pod_spec(backup, quorum, container, volumes, restart)


def _drill_pod(backup: BackupResource, quorum: QuorumResource) -> Object:
    limit = backup.drill.get("volumeSize")
    source = backup.destination
    paths = [f"--directory={DRILL_PATH}", f"--report={REPORT}"]
    arguments = [*paths, *source.options, source.url]
    container = {
        **_container(quorum, "drill", DRILLING, arguments, source.variables()),
        "resources": backup.drill.get("resources") or {},
        "volumeMounts": [
            {"name": DRILL_VOLUME, "mountPath": DRILL_PATH},
            *source.mounts(is_read_only=True),
        ],
    }
    volume = {"name": DRILL_VOLUME, "emptyDir": {"sizeLimit": limit} if limit else {}}
    return _pod_spec(backup, quorum, container, [volume], "Never")


def _pod_spec(
    backup: BackupResource,
    quorum: QuorumResource,
    container: Object,
    volumes: list[Object],
    restart: str,
) -> Object:
    template = backup.pod_template
    tmp = {"name": "tmp", "mountPath": "/tmp"}  # noqa: S108 - inside the pod
    container = {**container, "volumeMounts": [tmp, *container["volumeMounts"]]}
    spec: Object = {
        "automountServiceAccountToken": False,
        **backup.destination.identity,
        "enableServiceLinks": False,
        "restartPolicy": restart,
        "terminationGracePeriodSeconds": 30,
        "securityContext": manifests.pod_security(quorum.part("podTemplate")),
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}, *volumes, *backup.destination.volumes()],
    }
    spec |= {name: template[name] for name in ("nodeSelector", "tolerations") if template.get(name)}
    secrets = quorum.part("podTemplate").get("imagePullSecrets")
    return spec | ({"imagePullSecrets": secrets} if secrets else {})


def _container(
    quorum: QuorumResource,
    name: str,
    command: tuple[str, ...],
    arguments: list[str],
    variables: list[Object],
) -> Object:
    return {
        "name": name,
        "image": quorum.image,
        "imagePullPolicy": quorum.spec.get("imagePullPolicy", "IfNotPresent"),
        "command": [*command],
        "args": arguments,
        "env": variables,
        # A process that fails ends with one line, which the status repeats.
        "terminationMessagePath": REPORT,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": manifests.container_security(),
    }


def _arguments(backup: BackupResource) -> list[str]:
    found = [f"--to={backup.destination.url}", *backup.destination.options]
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
