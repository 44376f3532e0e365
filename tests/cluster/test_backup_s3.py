"""An encrypted backup in a real S3 server, a drill of it, the loss of every disk, and restores.

The server is the Versity gateway in a pod, with a certificate of a private authority. Its image is
built where the lab is; QUORATE_TEST_S3_IMAGE names one that the cluster has.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from tests.certificates import make_authority, make_certificate, needs_openssl
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
from tests.cluster.conftest import build_image, can_build
from tests.cluster.lab import DATA, Images, Lab, Object
from tests.s3 import CLIENT, KEYS, REGION, gateway_or_skip

pytestmark = [pytest.mark.timeout(900), needs_openssl]

IMAGE_VARIABLE = "QUORATE_TEST_S3_IMAGE"
DOCKERFILE = """FROM scratch
COPY versitygw /versitygw
USER 10001:10001
ENTRYPOINT ["/versitygw"]
"""
PORT = 7070
BUCKETS, BUCKET, PREFIX, DAMAGED = "/buckets", "backups", "meta", "damaged"
ARCHIVE = f"{BUCKETS}/{BUCKET}/{PREFIX}"
PLAINTEXT = "value-"
"""Every record of the writer begins with it."""
SEARCH = """
import json, sys
from pathlib import Path
files = [path for path in Path(sys.argv[1]).rglob('*') if path.is_file()]
print(json.dumps({str(path): sys.argv[2].encode() in path.read_bytes() for path in files}))
"""
DAMAGE = """
import shutil, sys
from pathlib import Path
archive, copy, name = sys.argv[1:]
# Not with the store's own checksums, which are attributes of the files.
shutil.copytree(archive, copy, copy_function=shutil.copyfile)
data = bytearray((Path(copy) / name).read_bytes())
data[len(data) // 2] ^= 1
(Path(copy) / name).write_bytes(data)
"""


@pytest.fixture(scope="module")
def s3_image(images: Images, tmp_path_factory: pytest.TempPathFactory) -> str:
    given = os.environ.get(IMAGE_VARIABLE)
    if given:
        return given
    if not can_build():
        pytest.skip(f"{IMAGE_VARIABLE} names no image of versitygw")
    folder = tmp_path_factory.mktemp("s3")
    binary = Path(gateway_or_skip(folder))
    if binary.parent != folder:
        shutil.copy(binary, folder / "versitygw")
    (folder / "Dockerfile").write_text(DOCKERFILE)
    return build_image("quorate-s3:test", folder=folder)


class Store:
    """The S3 server: a pod and its Service. Its buckets are directories, which a second container
    sees, with the commands of the controllers' image.
    """

    def __init__(self, lab: Lab, image: str, folder: Path) -> None:
        self._lab = lab
        self._image = image
        self._authority = make_authority(folder, "authority")
        self._host = f"s3.{lab.namespace}.svc"
        certificate = make_certificate(folder, "s3", self._authority, [self._host])
        parts = zip(("tls.crt", "tls.key"), certificate, strict=True)
        self._secret("s3-tls", {name: path.read_text() for name, path in parts})

    def start(self) -> None:
        selector = {"app": "s3"}
        ports = [{"port": PORT}]
        apply(self._lab, "Service", "s3", {"selector": selector, "ports": ports}, "v1")
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "s3", "labels": selector},
            "spec": self._pod(),
        }
        self._lab.kubectl("apply", "-f", "-", text=json.dumps(pod))

    def wait(self) -> None:
        self._lab.until("the store runs", lambda: self._lab.is_ready("s3"))

    def _pod(self) -> Object:
        buckets = {"name": "buckets", "mountPath": BUCKETS}
        tls = {"name": "tls", "mountPath": "/tls", "readOnly": True}
        common = {
            "imagePullPolicy": "IfNotPresent",
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            },
        }
        secure = ["--cert=/tls/tls.crt", "--key=/tls/tls.key"]
        gateway = {
            "name": "gateway",
            "image": self._image,
            "args": [f"--port=:{PORT}", *secure, "posix", BUCKETS],
            "env": [{"name": name, "value": value} for name, value in KEYS.items()],
            "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
            "volumeMounts": [buckets, tls],
            **common,
        }
        command = f"mkdir -p {BUCKETS}/{BUCKET} && exec sleep infinity"
        files = {
            "name": "files",
            "image": self._lab.images.controller,
            "command": ["sh", "-c", command],
            "volumeMounts": [buckets],
            **common,
        }
        return {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "securityContext": {
                "runAsNonRoot": True,
                "fsGroup": 10001,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [gateway, files],
            "volumes": [
                {"name": "buckets", "emptyDir": {}},
                {"name": "tls", "secret": {"secretName": "s3-tls", "defaultMode": 0o440}},
            ],
        }

    def _secret(self, name: str, data: dict[str, str], user: str = "") -> None:
        labels = {"quorate.dev/usable-by": user} if user else {}
        metadata = {"name": name, "labels": labels}
        made = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data}
        self._lab.kubectl("apply", "-f", "-", text=json.dumps(made))

    def run(self, *command: str) -> str:
        """Run a command beside the server; what it printed."""
        return self._lab.kubectl("exec", "s3", "-c", "files", "--", *command)

    def quorate(self, *arguments: str) -> str:
        return self.run("python", "-m", "quorate.cli.main", *arguments)

    def new_key(self, path: str) -> str:
        """The text of a new key file, which stays beside the server."""
        self.quorate("backup", "new-key", path)
        return self.run("cat", path)

    def destination(self, quorum: str, key: str, prefix: str = PREFIX) -> Object:
        """An archive, with Secrets that only this Quorum may use. key: the text of the key file."""
        access = {name: CLIENT[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
        authority = self._authority[0].read_text()
        self._secret(f"{quorum}-store", access, quorum)
        self._secret(f"{quorum}-authority", {"ca.crt": authority}, quorum)
        self._secret(f"{quorum}-key", {"keyset.json": key}, quorum)
        options = f"endpoint_override={self._host}:{PORT}&scheme=https&region={REGION}"
        s3 = {
            "url": f"s3://{BUCKET}/{prefix}?{options}",
            "secretName": f"{quorum}-store",
            "caSecretName": f"{quorum}-authority",
        }
        return {"s3": s3, "encryption": {"secretName": f"{quorum}-key"}}


def run_backup(lab: Lab) -> int:
    """Run the scheduled backup now; the end offset that the status shows then."""
    lab.kubectl("create", "job", "backup-now", "--from=cronjob/all-backup")
    lab.until(
        "the backup succeeds",
        lambda: condition(lab, "quorumbackup", "all").get("reason") == "LastRunSucceeded",
    )
    status = lab.get("quorumbackup", "all")["status"]
    assert lab.condition("Ready", status)["status"] == "True"
    return int(status["lastOffset"])


def assert_failed(quorum: Lab, *messages: str) -> None:
    """The recovery fails with these messages, and nothing exists for it."""
    quorum.until(
        f"the recovery of {quorum.name} fails",
        lambda: quorum.condition("Ready").get("reason") == "RecoveryFailed",
    )
    said = quorum.condition("Ready")["message"]
    print(f"{quorum.name}: {said}")
    for message in (f"Job/{quorum.name}-verify: ", *messages, "nothing was created"):
        assert message in said
    name = quorum.name
    for what in (
        ("statefulset", name),
        ("pvc", f"data-{name}-0"),
        ("configmap", f"{name}-bootstrap"),
    ):
        assert not quorum.exists(*what), what


def test_an_encrypted_backup_in_s3_is_restored_to_an_offset(
    lab: Lab, s3_image: str, tmp_path: Path
) -> None:
    store = Store(lab, s3_image, tmp_path)
    store.start()
    lab.install("operator.backups=true")
    lab.until_ready(3)
    spec = lab.quorum["spec"]
    store.wait()
    appending_pod(lab)
    key = store.new_key("/tmp/key")
    backup = {
        "quorumName": lab.name,
        "destination": store.destination(lab.name, key),
        "schedule": "0 4 1 1 *",
        "drill": {"schedule": "0 5 1 1 *", "volumeSize": "256Mi"},
    }
    apply(lab, "QuorumBackup", "all", backup)
    lab.until("the CronJob exists", lambda: lab.exists("cronjob", "all-backup"))
    lab.until("it writes", lambda: acknowledged(lab))
    last = run_backup(lab)

    search = ("python", "-c", SEARCH)
    on_disk = json.loads(lab.kubectl_exec(0, *search, DATA, PLAINTEXT))
    assert any(on_disk.values()), "the search finds it in the log"
    in_bucket = json.loads(store.run(*search, BUCKETS, PLAINTEXT))
    assert len(in_bucket) >= 2, "a segment and a manifest"
    assert not any(in_bucket.values()), in_bucket

    archived = [offset for _, offset, _ in acknowledged(lab) if offset < last]
    end = archived[len(archived) // 2] + 1
    listed = json.loads(
        store.quorate("backup", "list", ARCHIVE, "--key-file", "/tmp/key", "--json")
    )
    segment = listed["runs"][-1]["segments"][0]
    assert int(Path(segment).name.partition("-")[0]) < end, "the restore needs it"
    store.run("python", "-c", DAMAGE, ARCHIVE, f"{BUCKETS}/{BUCKET}/{DAMAGED}", segment)
    damaged = recover(
        lab, spec, DAMAGED, {"source": store.destination(DAMAGED, key, DAMAGED), "toOffset": end}
    )
    other_key = store.new_key("/tmp/other")
    wrong = recover(lab, spec, "wrong-key", {"source": store.destination("wrong-key", other_key)})

    drill_now(lab)
    assert lab.get("quorumbackup", "all")["status"]["lastDrill"]["endOffset"] == last

    cluster_id = lab.status["clusterId"]
    source = store.destination("restored", key)
    known = lose_all(lab)
    began = time.monotonic()
    restored = recover(lab, spec, "restored", {"source": source, "toOffset": end})
    restored.until_ready(3)
    figures.add("restore of an encrypted backup in S3", time.monotonic() - began)
    wanted = {offset: value for _, offset, value in known if offset < end}
    found = values(restored)
    missing = {offset for offset, value in wanted.items() if found.get(offset) != value}
    assert not missing, f"{len(missing)} of {len(wanted)}, from offset {min(missing)}"
    assert max(found) == end - 1, "nothing behind the end"
    print(f"restored {len(wanted)} of {len(known)} acknowledged records: those before {end}")
    assert restored.status["clusterId"] not in ("", cluster_id)

    assert_failed(damaged, f"{segment} cannot be decrypted", "the object was changed")
    assert_failed(wrong, "cannot be decrypted", "it has another key")
