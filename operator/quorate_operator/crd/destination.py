"""Where an archive is, in the specs of QuorumBackups and of Quorums that recover from one.

A bucket of an S3-compatible store, with a Secret or a service account, or a folder of a volume
claim; and the Secret with the key of an encrypted archive. All need the label
`quorate.dev/usable-by`. Without it, a user with permission to create these resources could write to
any claim of the namespace, send any Secret with such keys to a store of their choice, and use the
cloud's role of any service account.
"""

from __future__ import annotations

from dataclasses import dataclass

from quorate_operator.crd import schema
from quorate_operator.crd.rules import Schema
from quorate_operator.naming import USABLE_LABEL, Object

S3_URL = r"^s3://[a-z0-9][a-z0-9.-]+/[A-Za-z0-9._/-]*[A-Za-z0-9_-](\?[A-Za-z0-9._=&:%-]+)?$"
"""Without a user and a password: these belong in a Secret."""
PATH = r"^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$"
MOUNT = "/backups"
"""Where a pod has the volume claim."""
VOLUME = "backups"
KEY_VOLUME, KEY_MOUNT, KEY_FILE = "backup-key", "/etc/quorate/backup-key", "keyset.json"
CA_VOLUME, CA_MOUNT, CA_FILE = "backup-ca", "/etc/quorate/backup-ca", "ca.crt"
SECRET_MODE = 0o440
"""The group is that of the pod. The command refuses a key that others may read."""
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
    def key_secret(self) -> str:
        """The Secret with the key of the archive; "" if it is not encrypted."""
        found: Object = self.spec.get("encryption") or {}
        return str(found.get("secretName") or "")

    @property
    def ca_secret(self) -> str:
        """The Secret with the certificate authority of the store; "" for a public one."""
        return str(self._s3.get("caSecretName") or "")

    @property
    def service_account(self) -> str:
        """The service account of the pods; "" for the namespace's default."""
        return str(self._s3.get("serviceAccountName") or "")

    @property
    def objects(self) -> tuple[tuple[str, str], ...]:
        """Kinds and names of the objects that need the label."""
        found = (
            ("Secret", self.secret),
            ("Secret", self.key_secret),
            ("Secret", self.ca_secret),
            ("ServiceAccount", self.service_account),
            ("PersistentVolumeClaim", self.claim),
        )
        return tuple(each for each in found if each[1])

    @property
    def url(self) -> str:
        """The URL, as `quorate backup` takes it."""
        if self.claim:
            return f"{MOUNT}/{self._claim.get('path') or self.folder}"
        found = str(self._s3.get("url") or "")
        if not self.ca_secret:
            return found
        return f"{found}{'&' if '?' in found else '?'}tls_ca_file_path={CA_MOUNT}/{CA_FILE}"

    @property
    def options(self) -> list[str]:
        """The other options of `quorate backup` and `quorate restore`."""
        return [f"--key-file={KEY_MOUNT}/{KEY_FILE}"] if self.key_secret else []

    @property
    def identity(self) -> Object:
        """The fields of a pod by which a cloud knows it. No token of the cluster is mounted."""
        return {"serviceAccountName": self.service_account} if self.service_account else {}

    @property
    def problem(self) -> str:
        """Why it is invalid, "" if it is not; an older CRD may not have rejected it."""
        if bool(self.claim) == bool(self._s3):
            return "expected either s3 or claim"
        if not self.claim:
            if self.ca_secret and "scheme=http" in self.url.partition("?")[2].split("&"):
                return "s3.caSecretName needs TLS, and s3.url says scheme=http"
            return "" if self.url.startswith("s3://") else "s3.url is not s3://BUCKET/PREFIX"
        parts = self.url.removeprefix(f"{MOUNT}/").split("/")
        is_inside = {"", ".", ".."}.isdisjoint(parts)
        return "" if is_inside else "claim.path leaves the volume"

    def volumes(self) -> list[Object]:
        """The volumes of a pod."""
        found: list[Object] = []
        if self.claim:
            found.append({"name": VOLUME, "persistentVolumeClaim": {"claimName": self.claim}})
        for name, secret, file, _ in self._files:
            items = [{"key": file, "path": file}]
            source = {"secretName": secret, "defaultMode": SECRET_MODE, "items": items}
            found.append({"name": name, "secret": source})
        return found

    def mounts(self, *, is_read_only: bool = False) -> list[Object]:
        """The mounts of a container. is_read_only: of the archive."""
        found: list[Object] = []
        if self.claim:
            mode: Object = {"readOnly": True} if is_read_only else {}
            found.append({"name": VOLUME, "mountPath": MOUNT, **mode})
        for name, _, _, mount in self._files:
            found.append({"name": name, "mountPath": mount, "readOnly": True})
        return found

    @property
    def _files(self) -> list[tuple[str, str, str, str]]:
        """Volume, Secret, file and mount of the Secrets that become files."""
        found = (
            (KEY_VOLUME, self.key_secret, KEY_FILE, KEY_MOUNT),
            (CA_VOLUME, self.ca_secret, CA_FILE, CA_MOUNT),
        )
        return [each for each in found if each[1]]

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
            "caSecretName": schema.text(
                f"A Secret with the store's certificate authority as {CA_FILE}, with the label. "
                "Default: the public authorities.",
                minLength=1,
                maxLength=253,
            ),
            "serviceAccountName": schema.text(
                "A ServiceAccount that is bound to a cloud role, in place of secretName, with the "
                "label. Its token is not mounted. Default: that of the namespace.",
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
    encryption = schema.object(
        "The archive is encrypted.",
        {
            "secretName": schema.text(
                f"A Secret with the key file of `quorate backup new-key` as {KEY_FILE}, with the "
                "label.",
                minLength=1,
                maxLength=253,
            ),
        },
        required=["secretName"],
    )
    one = {"rule": "has(self.s3) != has(self.claim)", "message": "expected either s3 or claim"}
    fields = {"s3": s3, "claim": claim, "encryption": encryption}
    return schema.object(description, fields, **{"x-kubernetes-validations": [one]})
