"""The chart and the operator on a real cluster, under a writer that checks that nothing is lost."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from tests.cluster import figures
from tests.cluster.lab import Lab, Writer
from tests.tools.documents import block, command_lines

pytestmark = pytest.mark.timeout(900)

StartWriter = Callable[[Lab], Writer]

INSTALL, WATCH, SCALE, TEST = command_lines(block("charts/quorate/README.md", "helm test"))
OVERVIEW = command_lines(block("docs/kubernetes.md", "helm install"))


def test_the_overview_has_the_commands_of_the_charts_page() -> None:
    """So they are executed, too."""
    assert OVERVIEW == [INSTALL, WATCH, SCALE]


def test_install_scale_lose_disks(lab: Lab, start_writer: StartWriter, measured_run: int) -> None:
    """helm install, 3 to 5, a follower's and the leader's disk, 5 to 3 with the leader among those
    that go, helm upgrade keeps what was scaled, helm test.
    """
    print(f"\nrun {measured_run}")
    began = time.monotonic()
    lab.paste(INSTALL)
    lab.until_ready(3)
    figures.add("helm install, 3 voters", time.monotonic() - began)
    assert lab.status["clusterId"]
    columns = lab.paste(WATCH, {" -w": ""}).split()
    assert columns[1:6] == ["DESIRED", "VOTERS", "READY", "LEADER", "QUORATE"]
    load = start_writer(lab)

    load.mark()
    began = time.monotonic()
    lab.paste(SCALE)
    lab.until_ready(5)
    figures.add("scale 3 to 5", time.monotonic() - began, load.longest_gap_ms())

    lab.install("quorum.replicas=3")
    assert lab.quorum["spec"]["replicas"] == 5

    for who in ("follower", "leader"):
        leader = lab.leader
        victim = leader if who == "leader" else (leader + 1) % 5
        old = lab.directories()[victim]
        load.mark()
        began = time.monotonic()
        lab.lose_disk(victim)
        lab.until(
            f"node {victim} has a new directory",
            lambda: lab.directories().get(victim) not in ("", None, old),  # noqa: B023
        )
        lab.until_ready(5)
        figures.add(f"volume of the {who} lost", time.monotonic() - began, load.longest_gap_ms())
        assert lab.directories()[victim] != old

    lab.lead_from(4)
    load.mark()
    began = time.monotonic()
    lab.scale(3)
    lab.until_ready(3)
    what = "scale 5 to 3, the leader among the removed"
    figures.add(what, time.monotonic() - began, load.longest_gap_ms())
    assert sorted(lab.directories()) == [0, 1, 2]
    load.finish()
    assert "committed and read" in lab.paste(f"{TEST} --logs")


def test_a_lost_majority_is_refused_and_recovered_by_hand(
    lab: Lab, start_writer: StartWriter
) -> None:
    """Two of three disks: nothing is formatted, nothing deleted, and it is said. Then the procedure
    of the chart's README: `quorate recover` on the survivor, and the operator does the rest.
    """
    lab.install()
    lab.until_ready(3)
    load = start_writer(lab)
    # Whoever leads has all that was acknowledged.
    survivor = lab.leader
    lost = sorted({0, 1, 2} - {survivor})
    kept = lab.directories()[survivor]
    for ordinal in lost:
        lab.lose_disk(ordinal)
    lab.until(
        "the risk is told",
        lambda: lab.condition("DataLossRisk").get("reason") == "MajorityDisksLost",
    )
    assert lab.condition("DataLossRisk")["status"] == "True"
    lab.until("no leader", lambda: not lab.status.get("leader"))
    pods, claims = lab.uids("pods"), lab.uids("pvc")
    lab.scale(5)
    time.sleep(8)
    assert lab.uids("pods") == pods
    assert lab.uids("pvc") == claims
    roles = {member["nodeId"]: member["role"] for member in lab.status["members"]}
    assert roles == {survivor: "voter", lost[0]: "unformatted", lost[1]: "unformatted"}
    reasons = {e["reason"] for e in lab.get("events")["items"]}
    assert "MajorityDisksLost" in reasons
    lab.scale(3)

    began = time.monotonic()
    pod = f"{lab.name}-{survivor}"
    names = {"meta-2": pod}
    inspected = lab.paste(block("charts/quorate/README.md", "metadata --json"), names)
    (found,) = json.loads(inspected)["directories"]
    assert (found["nodeId"], found["damage"], found["isInUse"]) == (survivor, "", True)
    said = lab.paste(block("charts/quorate/README.md", "recover lost-majority"), names)
    assert "DRY RUN" in said
    print(said)
    lab.until(
        "the risk is over",
        lambda: lab.condition("DataLossRisk").get("status") == "False",
    )
    lab.until_ready(3)
    figures.add("a lost majority recovered by hand", time.monotonic() - began)
    assert lab.directories()[survivor] == kept
    lab.until("it writes", load.is_writing)
    load.finish()


def test_another_operator_takes_over(lab: Lab) -> None:
    """Of two operators the one that leads is deleted, and comes back as the one that waits."""
    lab.install("operator.replicas=2", "quorum.replicas=2")
    lab.until_ready(2)

    def holder() -> str:
        return str(lab.get("lease", "quorate-operator")["spec"].get("holderIdentity", ""))

    first = holder()
    began = time.monotonic()
    lab.kubectl("delete", "pod", first, "--force", "--grace-period=0")
    lab.scale(1)
    lab.until_ready(1)
    assert holder() != first
    figures.add("operator's pod deleted, another scaled to 1", time.monotonic() - began)
