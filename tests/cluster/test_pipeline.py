"""The scheduled Spark job, from the chart's switch: it reads the live quorum over TLS and writes
tables into a volume, as a pod that the restricted Pod Security Standard admits.

Its image is large, so the test is left out unless asked for: `--spark` builds it where the lab is,
the variable QUORATE_TEST_SPARK_IMAGE names one that the cluster has.
"""

from __future__ import annotations

import json
import os
import time

import pytest

from tests.cluster import figures
from tests.cluster.conftest import build_image
from tests.cluster.lab import Lab

pytestmark = pytest.mark.timeout(2_400)

IMAGE_VARIABLE = "QUORATE_TEST_SPARK_IMAGE"
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
    return build_image("quorate-spark:test", "spark")


def rows_of(lab: Lab, run: str) -> dict[str, int]:
    """Start the scheduled job now, wait for its end; the rows of each table that it printed."""
    lab.kubectl("create", "job", run, f"--from=cronjob/{lab.name}-pipeline")
    job = f"job/{run}"

    def ended() -> str:
        conditions = lab.get("job", run)["status"].get("conditions") or ()
        return next((c["type"] for c in conditions if c["status"] == "True"), "")

    lab.until(f"{run} ends", lambda: ended() in {"Complete", "Failed"}, 600)
    said = lab.kubectl("logs", job, "--tail=200")
    assert ended() == "Complete", said
    lines = [line.split() for line in said.splitlines()]
    return {line[0]: int(line[1]) for line in lines if len(line) == 2 and line[1].isdigit()}


def test_the_pipeline_writes_tables_of_a_live_quorum(lab: Lab, spark_image: str) -> None:
    lab.kubectl("apply", "-f", "-", text=json.dumps(CLAIM))
    repository, _, tag = spark_image.rpartition(":")
    lab.install(
        "pipeline.enabled=true",
        "pipeline.claim=tables",
        f"pipeline.image.repository={repository}",
        f"pipeline.image.tag={tag}",
        "pipeline.resources.requests.cpu=100m",
        "pipeline.resources.requests.memory=512Mi",
    )
    lab.until_ready(3)
    began = time.monotonic()
    first = rows_of(lab, "first")
    figures.add("the pipeline over a fresh quorum", time.monotonic() - began)
    print(first)
    assert first["ledger"] >= first["batches"] > 0
    lab.lead_from((lab.leader + 1) % 3)
    second = rows_of(lab, "second")
    print(second)
    assert second["ledger"] > first["ledger"], "another leader has written since"
