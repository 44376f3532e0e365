"""The operator, the CRDs and the controllers of release 0.1.0 are upgraded under a writer, by the
commands of docs/kubernetes.md.

The images of 0.1.0 take minutes to build, so this is left out unless asked for: `--upgrade` builds
them where the lab is, the variable QUORATE_TEST_EARLIER_IMAGES names two that the cluster has.

The CRDs of 0.1.0 replace those of the cluster, which must have no other Quorums.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from quorate_operator.crd import quorum_schema
from quorate_operator.crd_install import revision_of

from tests import earlier
from tests.cluster import figures
from tests.cluster.conftest import STEADY, build_image
from tests.cluster.lab import CHART, SMALL, Images, Lab, Writer, run
from tests.tools.documents import block, command_lines

pytestmark = pytest.mark.timeout(900)

IMAGES_VARIABLE = "QUORATE_TEST_EARLIER_IMAGES"
CRDS = ("quorums.quorate.dev", "quorumbackups.quorate.dev")
APPLY = ("kubectl", "apply", "--server-side", "--force-conflicts", "-f", str(CHART / "crds"))
NAMES = {"charts/quorate/crds": str(CHART / "crds")}
STOP, APPLY_CRDS, UPGRADE = command_lines(
    block("docs/kubernetes.md", "delete deployment meta-operator")
)
HELD_S = 20.0
"""A rollout that is not held takes less than this for its first pod."""
HEALTHY = {
    "Ready": "True",
    "SpecApplied": "True",
    "Quorate": "True",
    "Bootstrapped": "True",
    "Progressing": "False",
    "Degraded": "False",
    "DataLossRisk": "False",
    "Conflict": "False",
    "Hibernated": "False",
    "Fenced": "False",
    "Paused": "False",
}


class Earlier(NamedTuple):
    """Release 0.1.0: its chart, and its images in the cluster."""

    chart: Path
    images: Images


@pytest.fixture(scope="module")
def release(
    request: pytest.FixtureRequest, images: Images, tmp_path_factory: pytest.TempPathFactory
) -> Earlier:
    given = os.environ.get(IMAGES_VARIABLE)
    if not given and not request.config.getoption("--upgrade"):
        pytest.skip(f"--upgrade builds the images of 0.1.0; {IMAGES_VARIABLE} names two")
    folder = tmp_path_factory.mktemp("earlier")
    earlier.unpack_files(folder)
    if given:
        controller, _, operator = given.partition(",")
        return Earlier(folder / "charts" / "quorate", Images(controller, operator))
    made = Images("quorate:earlier", "quorate-operator:earlier")
    build_image(made.controller, "--target", "controller", folder=folder)
    build_image(made.operator, "--target", "operator", folder=folder)
    return Earlier(folder / "charts" / "quorate", made)


@pytest.fixture
def upgraded(lab: Lab, release: Earlier) -> Iterator[Lab]:
    """A namespace with a Quorum of 0.1.0, in a cluster with the CRD of 0.1.0."""
    lab.until("no other Quorum is left", lambda: not quorums())
    run("kubectl", "delete", "crd", "--ignore-not-found", *CRDS)
    values = (*release.images.values, *SMALL, STEADY)
    try:
        lab.helm("install", lab.name, str(release.chart), *(f"--set={each}" for each in values))
        assert installed_revision() == 0
        lab.until_ready(3)
        yield lab
    finally:
        run(*APPLY)


def quorums() -> str:
    return run("kubectl", "get", CRDS[0], "-A", "-o", "name", "--ignore-not-found", check=False)


def installed_revision() -> int:
    return revision_of(json.loads(run("kubectl", "get", "crd", CRDS[0], "-o", "json")))


class Watched:
    """The controllers' pods that were there, in the order in which they were seen."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.seen: dict[str, list[str]] = {}
        self.order: list[str] = []
        self.away_max = 0
        self.look()

    def look(self) -> bool:
        """Note the pods of now. Always True, for `until`."""
        selector = f"app.kubernetes.io/instance={self._lab.name}"
        component = "app.kubernetes.io/component=controller"
        items = self._lab.get("pods", "-l", f"{selector},{component}")["items"]
        for each in items:
            name, uid = each["metadata"]["name"], each["metadata"]["uid"]
            if uid not in self.seen.setdefault(name, []):
                self.seen[name].append(uid)
                if len(self.seen[name]) > 1:
                    self.order.append(name)
        stays = [each for each in items if "deletionTimestamp" not in each["metadata"]]
        self.away_max = max(self.away_max, len(self.seen) - len(stays))
        return True

    def until_ready(self, image: str) -> None:
        """Wait until all pods have the image and the quorum is as wanted."""
        lab = self._lab

        def is_ready() -> bool:
            self.look()
            found = lab.quorum
            status = found.get("status") or {}
            members = status.get("members") or ()
            return (
                found["spec"]["image"] == image
                and status.get("observedGeneration") == found["metadata"]["generation"]
                and lab.condition("Ready", status).get("status") == "True"
                and all(len(uids) > 1 for uids in self.seen.values())
                and len({member.get("version") for member in members}) == 1
            )

        lab.until("all pods are of the new release", is_ready)


def assert_healthy(lab: Lab) -> None:
    conditions = lab.status["conditions"]
    assert {each["type"]: each["status"] for each in conditions} == HEALTHY
    assert not any(map(sum, lab.starts().values()))


def upgrade(lab: Lab, *values: str) -> None:
    """The commands of the page, in their order."""
    lab.paste(STOP)
    lab.paste(APPLY_CRDS, NAMES)
    assert installed_revision() == quorum_schema.REVISION
    lab.paste(" ".join((UPGRADE, *(f"--set {each}" for each in values))))


def heal(lab: Lab, load: Writer) -> None:
    """The new operator replaces a lost disk, that of a follower."""
    before = lab.directories()
    lost = (lab.leader + 1) % 3
    load.mark()
    lab.lose_disk(lost)

    def is_healed() -> bool:
        members = {each["nodeId"]: each for each in lab.status.get("members") or ()}
        member = members.get(lost, {})
        is_new = member.get("directoryId", "") not in ("", before[lost])
        return is_new and member["role"] == "voter" and lab.status.get("voters") == 3

    lab.until("the disk is replaced", is_healed)
    lab.until("all are alive", lambda: lab.condition("Degraded").get("status") == "False")
    assert {node for node, each in lab.directories().items() if before[node] != each} == {lost}


def test_an_upgrade_restarts_each_pod_once(
    upgraded: Lab, start_writer: Callable[[Lab], Writer]
) -> None:
    lab = upgraded
    load = start_writer(lab)
    cluster, directories, leader = lab.status["clusterId"], lab.directories(), lab.leader
    watched = Watched(lab)
    load.mark()
    began = time.monotonic()
    upgrade(lab)
    watched.until_ready(lab.images.controller)
    figures.add("operator and pods upgraded", time.monotonic() - began, load.longest_gap_ms())
    assert [len(each) for each in watched.seen.values()] == [2, 2, 2], watched.seen
    assert watched.away_max <= 1
    assert watched.order[-1] == f"{lab.name}-{leader}", watched.order
    assert (lab.status["clusterId"], lab.directories()) == (cluster, directories)
    assert_healthy(lab)
    heal(lab, load)
    assert_healthy(lab)
    load.finish()


def test_an_upgrade_waits_for_an_approval(
    upgraded: Lab, start_writer: Callable[[Lab], Writer]
) -> None:
    lab = upgraded
    load = start_writer(lab)
    cluster, directories = lab.status["clusterId"], lab.directories()
    watched = Watched(lab)
    upgrade(lab, "quorum.rollout.approval=Manual")
    lab.until("it waits", lambda: lab.condition("Ready").get("reason") == "ApprovalRequired")
    deadline = time.monotonic() + HELD_S
    while time.monotonic() < deadline:
        watched.look()
        time.sleep(lab.poll_s)
    assert [len(each) for each in watched.seen.values()] == [1, 1, 1], watched.seen
    assert lab.condition("Quorate")["status"] == "True"
    # A disk that is lost meanwhile is healed: its pod gets the new template.
    heal(lab, load)
    directories = lab.directories()
    watched.look()
    assert lab.condition("Ready")["reason"] == "ApprovalRequired"
    lab.paste(block("docs/kubernetes.md", "kubectl quorate approve"))
    watched.until_ready(lab.images.controller)
    assert [len(each) for each in watched.seen.values()] == [2, 2, 2], watched.seen
    assert watched.away_max <= 1
    assert (lab.status["clusterId"], lab.directories()) == (cluster, directories)
    assert_healthy(lab)
    load.finish()


def test_an_upgrade_can_be_taken_back(
    upgraded: Lab, release: Earlier, start_writer: Callable[[Lab], Writer]
) -> None:
    lab = upgraded
    load = start_writer(lab)
    cluster, directories = lab.status["clusterId"], lab.directories()
    watched = Watched(lab)
    upgrade(lab)
    watched.until_ready(lab.images.controller)
    watched = Watched(lab)
    lab.paste(block("docs/kubernetes.md", "helm rollback meta"))
    watched.until_ready(release.images.controller)
    assert [len(each) for each in watched.seen.values()] == [2, 2, 2], watched.seen
    assert watched.away_max <= 1
    assert (lab.status["clusterId"], lab.directories()) == (cluster, directories)
    assert installed_revision() == quorum_schema.REVISION
    load.finish()
