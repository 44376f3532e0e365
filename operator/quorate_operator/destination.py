"""Where an archive is, in the specs of QuorumBackups and of Quorums that recover from one.

A bucket of an S3-compatible store, with a Secret, or a folder of a volume claim. Both need the
label `quorate.dev/usable-by`. Without it, a user with permission to create these resources could
write to any claim of the namespace, and send any Secret with such keys to a store of their choice.
"""

from __future__ import annotations

from dataclasses import dataclass

from quorate_operator import schema
from quorate_operator.crd_rules import Schema
from quorate_operator.naming import USABLE_LABEL, Object

S3_URL = r"^s3://[a-z0-9][a-z0-9.-]+/[A-Za-z0-9._/-]*[A-Za-z0-9_-](\?[A-Za-z0-9._=&:%-]+)?$"
"""Without a user and a password: these belong in a Secret."""
PATH = r"^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$"
MOUNT = "/backups"
"""Where a pod has the volume claim."""
VOLUME = "backups"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": False,
    "AWS_SECRET_ACCESS_KEY": False,
    "AWS_SESSION_TOKEN": True,
    "AWS_REGION": True,
}
"""The keys of a Secret that become variables of the same names, and whether each is optional."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Where backups are stored."""

    spec: Object
    """The JSON object of the destination."""
    folder: str
    """The folder of a claim, if the spec names none."""

    @property
    def _s3(self) -> Object:
        found: Object = self.spec.get("s3") or {}
        return found

    @property
    def _claim(self) -> Object:
        found: Object = self.spec.get("claim") or {}
        return found

    @property
    def claim(self) -> str:
        """The volume claim; "" for a bucket."""
        return str(self._claim.get("name") or "")

    @property
    def secret(self) -> str:
        """The Secret with the credentials of the bucket; "" if the pods need none."""
        return str(self._s3.get("secretName") or "")

    @property
    def objects(self) -> tuple[tuple[str, str], ...]:
        """Kinds and names of the objects that need the label."""
        found = (("Secret", self.secret), ("PersistentVolumeClaim", self.claim))
        return tuple(each for each in found if each[1])

    @property
    def url(self) -> str:
        """The URL, as `quorate backup` takes it."""
        if self.claim:
            return f"{MOUNT}/{self._claim.get('path') or self.folder}"
        return str(self._s3.get("url") or "")

    @property
    def problem(self) -> str:
        """Why it is invalid, "" if it is not; an older CRD may not have rejected it."""
        if bool(self.claim) == bool(self._s3):
            return "expected either s3 or claim"
        if not self.claim:
            return "" if self.url.startswith("s3://") else "s3.url is not s3://BUCKET/PREFIX"
        parts = self.url.removeprefix(f"{MOUNT}/").split("/")
        is_inside = {"", ".", ".."}.isdisjoint(parts)
        return "" if is_inside else "claim.path leaves the volume"

    def volumes(self) -> list[Object]:
        """The volumes of a pod."""
        if not self.claim:
            return []
        return [{"name": VOLUME, "persistentVolumeClaim": {"claimName": self.claim}}]

    def mounts(self, *, is_read_only: bool = False) -> list[Object]:
        """The mounts of a container."""
        if not self.claim:
            return []
        mode: Object = {"readOnly": True} if is_read_only else {}
        return [{"name": VOLUME, "mountPath": MOUNT, **mode}]

    def variables(self) -> list[Object]:
        """The environment of a container. The keys are named: others could change the process."""
        if not self.secret:
            return []
        found: list[Object] = []
        for name, is_optional in CREDENTIALS.items():
            source = {"name": self.secret, "key": name, "optional": is_optional}
            found.append({"name": name, "valueFrom": {"secretKeyRef": source}})
        return [*found, {"name": "AWS_EC2_METADATA_DISABLED", "value": "true"}]


def destination(description: str) -> Schema:
    """The schema of a destination."""
    s3 = schema.object(
        "An S3-compatible store.",
        {
            "url": schema.text(
                "s3://BUCKET/PREFIX, with options of the store in its query, such as "
                "?endpoint_override=minio:9000&scheme=http.",
                pattern=S3_URL,
                maxLength=1024,
            ),
            "secretName": schema.text(
                "A Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and optionally "
                f"AWS_SESSION_TOKEN and AWS_REGION. It needs the label {USABLE_LABEL} with the "
                "Quorum's name.",
                minLength=1,
                maxLength=253,
            ),
        },
        required=["url"],
    )
    claim = schema.object(
        "A volume claim.",
        {
            "name": schema.text(
                f"The PersistentVolumeClaim. It needs the label {USABLE_LABEL} with the Quorum's "
                "name.",
                minLength=1,
                maxLength=253,
            ),
            "path": schema.text(
                "A folder of the volume; default: the Quorum's name.", pattern=PATH, maxLength=200
            ),
        },
        required=["name"],
    )
    one = {"rule": "has(self.s3) != has(self.claim)", "message": "expected either s3 or claim"}
    return schema.object(
        description, {"s3": s3, "claim": claim}, **{"x-kubernetes-validations": [one]}
    )
