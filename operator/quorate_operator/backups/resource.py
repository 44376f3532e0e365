"""The QuorumBackup resource as the API server returns it, and the CRD's defaults."""

from __future__ import annotations

from dataclasses import dataclass, field

from quorate_operator import naming
from quorate_operator.crd.destination import Destination
from quorate_operator.naming import API_VERSION, Object

KIND = "QuorumBackup"
PLURAL = "quorumbackups"
BACKUP_LABEL = f"{naming.GROUP}/backup"
"""The label of the objects and pods of a QuorumBackup: its name."""
MODE_LABEL = f"{naming.GROUP}/backup-mode"
CONTINUOUS, SCHEDULED, DRILL = "continuous", "scheduled", "drill"


@dataclass(frozen=True, slots=True)
class BackupResource:
    """One QuorumBackup resource. The properties interpret `spec` and `status`."""

    name: str
    namespace: str
    uid: str = ""
    generation: int = 0
    deleted: bool = False
    spec: Object = field(default_factory=dict)
    """The JSON object of the spec."""
    status: Object = field(default_factory=dict)
    """The JSON object of the status."""

    @classmethod
    def parse(cls, found: Object) -> BackupResource:
        metadata = found["metadata"]
        return cls(
            name=metadata["name"],
            namespace=metadata["namespace"],
            uid=metadata.get("uid", ""),
            generation=metadata.get("generation", 0),
            deleted=bool(metadata.get("deletionTimestamp")),
            spec=found.get("spec") or {},
            status=found.get("status") or {},
        )

    @property
    def kind(self) -> str:
        return KIND

    @property
    def quorum_name(self) -> str:
        return str(self.spec.get("quorumName") or "")

    @property
    def destination(self) -> Destination:
        return Destination(self.spec.get("destination") or {}, self.quorum_name)

    @property
    def schedule(self) -> str:
        """The cron expression; "" for a continuous backup."""
        return str(self.spec.get("schedule") or "")

    @property
    def mode(self) -> str:
        return SCHEDULED if self.schedule else CONTINUOUS

    @property
    def interval_s(self) -> int:
        return int(self.spec.get("intervalSeconds", 5))

    @property
    def keep_days(self) -> int | None:
        found = self.spec.get("keepDays")
        return None if found is None else int(found)

    @property
    def is_suspended(self) -> bool:
        return bool(self.spec.get("suspend", False))

    @property
    def client_secret(self) -> str:
        """The Secret of the certificate with which it connects, if the Quorum has TLS."""
        client = str(self.spec.get("client") or "")
        if client:
            return naming.named_client_secret(self.quorum_name, client)
        return naming.client_secret(self.quorum_name)

    @property
    def pod_template(self) -> Object:
        found: Object = self.spec.get("podTemplate") or {}
        return found

    @property
    def workload(self) -> tuple[str, str]:
        """The kind and the name of the object that runs it."""
        return ("CronJob" if self.schedule else "Deployment"), f"{self.name}-backup"

    @property
    def other_workload(self) -> tuple[str, str]:
        """The workload of the other mode, which must not exist at the same time."""
        return ("Deployment" if self.schedule else "CronJob"), f"{self.name}-backup"

    @property
    def drill(self) -> Object:
        """`spec.drill`, empty without one."""
        found: Object = self.spec.get("drill") or {}
        return found

    @property
    def drill_job(self) -> tuple[str, str]:
        """The kind and the name of the object that runs restore drills."""
        return "CronJob", f"{self.name}-drill"

    @property
    def invalid(self) -> str:
        """Why the spec is invalid, "" if it is not; an older CRD may not have rejected it."""
        if not self.quorum_name:
            return "quorumName is not set"
        problem = self.destination.problem
        return f"destination: {problem}" if problem else ""

    @property
    def owner(self) -> Object:
        """The owner reference, by which Kubernetes deletes an object with its QuorumBackup."""
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": False,
        }
