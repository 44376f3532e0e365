"""What restores a backup into a new Quorum: the first voter's volume claim, and two Jobs.

The first Job runs `quorate restore --dry-run`, which verifies what it needs and finds where it
is to end, while nothing exists for the restore. The second one runs `quorate restore` on the empty
volume, before any pod of the Quorum exists. It is created once, and never again once the Quorum is
bootstrapped. If it is repeated, because its machine failed, it does nothing on a volume that it has
restored completely (`pod`).
"""

from __future__ import annotations

from quorate_operator import naming
from quorate_operator.kube.api import Kube
from quorate_operator.kube.job_state import JobRun, job_run
from quorate_operator.naming import DATA_PATH, Object
from quorate_operator.objects import manifests
from quorate_operator.objects.resource import QuorumResource

ORDINAL = 0
RETRIES = 2
POD_FIELDS = ("nodeSelector", "tolerations", "affinity", "imagePullSecrets", "priorityClassName")


def labels(quorum: QuorumResource) -> dict[str, str]:
    """The labels of the Job and its pods. They wake the Quorum, and select no controller."""
    own = {**naming.labels(quorum.name), naming.COMPONENT_LABEL: "restore"}
    return quorum.common_labels | own


def restore_runs(
    kube: Kube, quorum: QuorumResource, found: list[Object | None]
) -> list[JobRun | None]:
    """The state of each Job, None without one. Reads their pods. Raises KubeError."""
    if not any(found):
        return [None for _ in found]
    selector = {**naming.selector(quorum.name), naming.COMPONENT_LABEL: "restore"}
    text = ",".join(f"{name}={value}" for name, value in sorted(selector.items()))
    pods = kube.list("Pod", quorum.namespace, text)
    return [None if each is None else job_run(each, pods) for each in found]


def claim(quorum: QuorumResource) -> Object:
    """The volume claim of the first voter, as the StatefulSet would create it."""
    template = manifests.claim_template(quorum)
    metadata = {
        "name": naming.claim(quorum.name, ORDINAL),
        "namespace": quorum.namespace,
        "labels": template["metadata"]["labels"],
    }
    kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    return {**kind, "metadata": metadata, "spec": template["spec"]}


def job(quorum: QuorumResource, cluster_id: str) -> Object:
    """The Job that restores the backup to the first voter's volume. cluster_id: the new one."""
    volume = {
        "name": naming.VOLUME,
        "persistentVolumeClaim": {"claimName": naming.claim(quorum.name, ORDINAL)},
    }
    container = _container(
        quorum,
        ["python", "-m", "quorate_operator.pod", "restore"],
        [f"--cluster-id={cluster_id}", *_arguments(quorum)],
    )
    container["env"].insert(0, {"name": "QUORATE_POD_CLUSTER_ID", "value": cluster_id})
    container["volumeMounts"].append({"name": naming.VOLUME, "mountPath": DATA_PATH})
    return _job(quorum, naming.restore_job(quorum.name), container, [volume])


def verification(quorum: QuorumResource) -> Object:
    """The Job that verifies the backup, and finds where the restore will end."""
    command = ["python", "-m", "quorate.cli.main", "restore"]
    container = _container(quorum, command, ["--dry-run", *_arguments(quorum)])
    return _job(quorum, naming.verify_job(quorum.name), container, [])


def _job(quorum: QuorumResource, name: str, container: Object, volumes: list[Object]) -> Object:
    template = quorum.part("podTemplate")
    assert quorum.recovery is not None, "there is something to restore"
    source = quorum.recovery
    pod: Object = {
        "automountServiceAccountToken": False,
        **source.identity,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "securityContext": manifests.pod_security(template),
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}, *volumes, *source.volumes()],
    }
    pod |= {name: template[name] for name in POD_FIELDS if template.get(name)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": quorum.namespace,
            "labels": labels(quorum),
            "ownerReferences": [quorum.owner],
        },
        "spec": {
            "backoffLimit": RETRIES,
            "template": {"metadata": {"labels": labels(quorum)}, "spec": pod},
        },
    }


def _container(quorum: QuorumResource, command: list[str], arguments: list[str]) -> Object:
    assert quorum.recovery is not None, "there is something to restore"
    return {
        "name": "restore",
        "image": quorum.image,
        "imagePullPolicy": quorum.spec.get("imagePullPolicy", "IfNotPresent"),
        "command": command,
        "args": arguments,
        "env": quorum.recovery.variables(),
        # A process that fails ends with one line, which the status repeats.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": quorum.part("podTemplate").get("resources") or {},
        "securityContext": manifests.container_security(),
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - inside the pod
            *quorum.recovery.mounts(is_read_only=True),
        ],
    }


def _arguments(quorum: QuorumResource) -> list[str]:
    assert quorum.recovery is not None, "there is something to restore"
    host, port = naming.place(quorum.name, quorum.namespace, ORDINAL)
    endpoints = {quorum.raft_listener: port}
    if quorum.has_kafka_listener:
        endpoints[quorum.kafka_listener] = naming.KAFKA_PORT
    found = [
        f"--directory={naming.METADATA_PATH}",
        f"--node-id={quorum.ids.of(ORDINAL)}",
        *(f"--endpoint={name}://{host}:{port}" for name, port in endpoints.items()),
    ]
    for field, option in (("toOffset", "--to-offset"), ("toTime", "--to-time")):
        wanted = quorum.recovery_part.get(field)
        if wanted is not None:
            found.append(f"{option}={wanted}")
    return [*found, *quorum.recovery.options, quorum.recovery.url]
