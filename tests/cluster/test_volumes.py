"""Members move to volumes of another StorageClass under a writer, and nothing is lost."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator

import pytest

from tests.cluster import figures
from tests.cluster.conftest import STEADY
from tests.cluster.lab import Lab, Writer, run
from tests.tools.documents import block

pytestmark = pytest.mark.timeout(600)

MOVE = block("charts/quorate/README.md", "kubectl delete pvc")
MOVED_S = 200.0
RECREATE = block("charts/quorate/README.md", "storageClassName=fast")


@pytest.fixture
def storage_class(lab: Lab) -> Iterator[str]:
    """A StorageClass like the default one, with another name."""
    classes = json.loads(run("kubectl", "get", "storageclass", "-o", "json"))["items"]
    default = "storageclass.kubernetes.io/is-default-class"
    (made,) = (
        each
        for each in classes
        if (each["metadata"].get("annotations") or {}).get(default) == "true"
    )
    name = f"{lab.namespace}-fast"
    made["metadata"] = {"name": name}
    lab.kubectl("apply", "-f", "-", text=json.dumps(made))
    yield name
    run("kubectl", "delete", "storageclass", name)


def classes(lab: Lab) -> list[str]:
    """The StorageClasses of the claims."""
    items = lab.get("pvc", "-l", f"app.kubernetes.io/instance={lab.name}")["items"]
    return [each["spec"].get("storageClassName", "") for each in items]


def said(lab: Lab) -> str:
    """Why the objects are not as the spec wants them."""
    return str(lab.condition("SpecApplied").get("message", ""))


def test_members_move_to_another_storage_class(
    lab: Lab, storage_class: str, start_writer: Callable[[Lab], Writer]
) -> None:
    lab.install(STEADY)
    lab.until_ready(3)
    load = start_writer(lab)
    load.mark()
    pods, starts, directories = lab.uids("pods"), lab.starts(), lab.directories()
    uid = lab.get("statefulset", lab.name)["metadata"]["uid"]
    patch = json.dumps({"spec": {"storage": {"storageClassName": storage_class}}})
    lab.kubectl("patch", "quorum", lab.name, "--type=merge", "-p", patch)
    lab.until(
        "the missing permission is reported",
        lambda: lab.condition("SpecApplied").get("reason") == "StorageClassRefused",
    )
    assert "cannot delete resource" in lab.condition("SpecApplied")["message"]
    assert lab.get("statefulset", lab.name)["metadata"]["uid"] == uid

    lab.paste(RECREATE, {"storageClassName=fast": f"storageClassName={storage_class}"})
    lab.until(
        "the volumes to move are named",
        lambda: lab.condition("SpecApplied").get("reason") == "VolumesDiffer",
    )
    controllers = {name: each for name, each in lab.uids("pods").items() if name in pods}
    assert {name: pods[name] for name in controllers} == controllers
    assert lab.starts() == starts
    time.sleep(2)
    assert lab.directories() == directories

    def next_claim() -> str:
        found = re.search(r"delete PersistentVolumeClaim/(\S+)", said(lab))
        return "" if found is None else found[1]

    # One by one, the leader's last; then the others at once.
    first = lab.until("a claim is named", next_claim)
    assert first != f"data-{lab.name}-{lab.leader}"
    load.mark()
    began = time.monotonic()
    lab.paste(MOVE, {"data-meta-2": first})
    lab.until("it has moved", lambda: classes(lab).count(storage_class) == 1, MOVED_S)
    lab.until("the next one is named", lambda: next_claim() not in ("", first), MOVED_S)
    figures.add("a member moved to a new volume", time.monotonic() - began, load.longest_gap_ms())

    load.mark()
    began = time.monotonic()
    others = sorted({f"data-{lab.name}-{ordinal}" for ordinal in range(3)} - {first})
    lab.paste(MOVE, {"data-meta-2": " ".join(others)})
    lab.until("all have moved", lambda: classes(lab) == [storage_class] * 3, MOVED_S)
    lab.until_ready(3)
    figures.add("two members moved, one by one", time.monotonic() - began, load.longest_gap_ms())
    now = lab.directories()
    assert sorted(now) == sorted(directories)
    assert set(now.values()).isdisjoint(directories.values())
    load.finish()
