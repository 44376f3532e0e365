"""The scheduled Spark job, from the chart's switch: it reads the live quorum over TLS and keeps
tables in a volume, in a pod that the restricted Pod Security Standard admits, or with executors in
such pods.

Its image is large, so the tests are left out unless asked for: `--spark` builds it where the lab
is, the variable QUORATE_TEST_SPARK_IMAGE names one that the cluster has.
"""

from __future__ import annotations

import json
import os
import re
import time
from typing import NamedTuple

import pytest

from tests.cluster import figures
from tests.cluster.conftest import build_image
from tests.cluster.lab import Lab

pytestmark = pytest.mark.timeout(2_400)

IMAGE_VARIABLE = "QUORATE_TEST_SPARK_IMAGE"
RUN_S = 900
COMPLETE, FAILED = "Complete", "Failed"
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "tables"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "256Mi"}},
    },
}


@pytest.fixture
def spark_image(request: pytest.FixtureRequest) -> str:
    given = os.environ.get(IMAGE_VARIABLE)
    if given:
        return given
    if not request.config.getoption("--spark"):
        pytest.skip(f"--spark builds the image of the pipeline; {IMAGE_VARIABLE} names one")
    return build_image("quorate-spark:test", "--target", "spark")


def install(lab: Lab, image: str, *values: str) -> None:
    repository, _, tag = image.rpartition(":")
    lab.install(
        "pipeline.enabled=true",
        "pipeline.schedule=@yearly",
        "pipeline.claim=tables",
        f"pipeline.image.repository={repository}",
        f"pipeline.image.tag={tag}",
        "pipeline.resources.requests.cpu=100m",
        "pipeline.resources.requests.memory=512Mi",
        *values,
    )


class Ended(NamedTuple):
    """How a job went."""

    said: str
    statuses: list[int]
    """What its pods exited with."""
    executors: set[str]
    """The pods that Spark made for it."""

    @property
    def rows(self) -> dict[str, int]:
        """Of each table, as printed."""
        lines = [line.split() for line in self.said.splitlines()]
        return {line[0]: int(line[1]) for line in lines if len(line) == 2 and line[1].isdigit()}


def ran(lab: Lab, name: str, how: str = COMPLETE) -> Ended:
    """Start the scheduled job now and wait for its end, which must be `how`."""
    began = time.monotonic()
    lab.kubectl("create", "job", name, f"--from=cronjob/{lab.name}-pipeline")
    executors: set[str] = set()

    def ends() -> set[str]:
        found = lab.kubectl("get", "pods", "-l", "spark-role=executor", "-o", "name")
        executors.update(found.split())
        conditions = lab.get("job", name)["status"].get("conditions") or ()
        return {c["type"] for c in conditions if c["status"] == "True"} & {COMPLETE, FAILED}

    found = lab.until(f"{name} ends", ends, RUN_S)
    figures.add(f"pipeline: {name}", time.monotonic() - began)
    said = lab.kubectl("logs", f"job/{name}", "--tail=200", check=False)
    pods = lab.get("pods", "-l", f"job-name={name}")["items"]
    states = [s["state"] for pod in pods for s in pod["status"].get("containerStatuses") or ()]
    statuses = [state["terminated"]["exitCode"] for state in states if "terminated" in state]
    print(said)
    assert how in found, said
    return Ended(said, statuses, executors)


def test_the_tables_of_a_live_quorum_are_kept_up_to_date(lab: Lab, spark_image: str) -> None:
    lab.kubectl("apply", "-f", "-", text=json.dumps(CLAIM))
    install(lab, spark_image)
    lab.until_ready(3)
    first = ran(lab, "first").rows
    assert first["ledger"] >= first["batches"] > 0
    assert first["state_voters"] == 3
    lab.lead_from((lab.leader + 1) % 3)
    second = ran(lab, "second")
    assert second.rows["ledger"] > first["ledger"], "another leader has written since"
    assert second.executors == set()

    # Nobody is there to be read: one line, and it is tried again before it is given up.
    lab.kubectl("scale", f"deployment/{lab.name}-operator", "--replicas=0")
    lab.kubectl("scale", f"statefulset/{lab.name}", "--replicas=0")
    lab.until("no controller", lambda: not lab.exists("pod", f"{lab.name}-0"))
    third = ran(lab, "third", FAILED)
    assert third.statuses == [1, 1, 1]
    assert re.fullmatch(r"quorate: error: no leader within [^\n]+\n", third.said)


def test_executors_are_pods_that_kubernetes_is_asked_for(lab: Lab, spark_image: str) -> None:
    lab.kubectl("apply", "-f", "-", text=json.dumps(CLAIM))
    install(lab, spark_image, "pipeline.executors.count=2", "pipeline.executors.requestCores=100m")
    lab.until_ready(3)
    first = ran(lab, "spread")
    assert first.rows["ledger"] >= first.rows["batches"] > 0
    assert first.rows["state_voters"] == 3
    assert len(first.executors) == 2
    selector = ("-l", "spark-role=executor", "-o", "name")
    lab.until("the executors are gone", lambda: not lab.kubectl("get", "pods", *selector).strip())
