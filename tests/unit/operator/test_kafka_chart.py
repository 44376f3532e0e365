"""The example's chart for brokers of Kafka, as helm renders it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.lab import CHART, ROOT
from tests.unit.operator.test_operator_chart import KUBE, SCHEDULING, helm, pod_specs, run

__all__ = ["helm"]  # a fixture

EXAMPLE = ROOT / "examples" / "kafka" / "chart"
Object = dict[str, Any]


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """A copy that contains Quorate's chart."""
    copied = tmp_path / "chart"
    shutil.copytree(EXAMPLE, copied, ignore=shutil.ignore_patterns("charts", "Chart.lock"))
    shutil.copytree(CHART, copied / "charts" / "quorate")
    return copied


def rendered(helm: str, chart: Path, values: Object) -> dict[str, Object]:
    """The objects of a release "x" in the namespace "lab", by Kind/name."""
    given = f"--set-json=quorate={json.dumps(values.pop('quorate', {}))}"
    rest = [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]
    done = run(helm, "template", "x", str(chart), "--namespace", "lab", *KUBE, given, *rest)
    assert done.returncode == 0, done.stderr
    made = [each for each in yaml.safe_load_all(done.stdout) if each]
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in made}


def properties(made: dict[str, Object]) -> dict[str, str]:
    text = made["ConfigMap/x-broker"]["data"]["server.properties"]
    pairs = (line.partition("=") for line in text.splitlines())
    return {name: value for name, _, value in pairs}


def test_the_chart_passes_lint(helm: str, chart: Path) -> None:
    done = run(helm, "lint", "--strict", str(chart), *KUBE)
    assert done.returncode == 0, done.stdout


def test_the_quorum_certifies_as_many_brokers_as_there_are(helm: str, chart: Path) -> None:
    number = {"quorate": {"quorum": {"tls": {"brokerCertificates": 5}}}}
    made = rendered(helm, chart, number)
    spec = made["Quorum/x"]["spec"]
    assert spec["tls"]["brokerCertificates"] == 5
    assert spec["kafkaListener"] == {"enabled": True, "protocol": "SSL"}
    # Controllers choose the number of replicas; a broker's setting has no effect.
    assert spec["config"]["default.replication.factor"] == "3"
    brokers = made["StatefulSet/x-broker"]["spec"]
    assert brokers["replicas"] == 5
    volumes = {each["name"]: each for each in brokers["template"]["spec"]["volumes"]}
    keys = volumes["keys"]["projected"]["sources"][0]["secret"]
    assert keys["name"] == "x-broker-tls"
    assert {"key": "broker-4.key", "path": "x-broker-4.key"} in keys["items"]
    users = properties(made)["super.users"].split(";")
    assert users == ["User:CN=client", *(f"User:CN=broker-{n}" for n in range(5))]


@pytest.mark.parametrize(("count", "replicas", "in_sync"), [(1, 1, 1), (2, 2, 1), (4, 3, 2)])
def test_replication_fits_the_number_of_brokers(
    helm: str, chart: Path, count: int, replicas: int, in_sync: int
) -> None:
    made = rendered(helm, chart, {"quorate": {"quorum": {"tls": {"brokerCertificates": count}}}})
    found = properties(made)
    assert found["offsets.topic.replication.factor"] == str(replicas)
    assert found["min.insync.replicas"] == str(in_sync)


def test_settings_of_the_user_win(helm: str, chart: Path) -> None:
    settings = {"log.segment.bytes": 1_073_741_824, "min.insync.replicas": 3, "a.switch": False}
    found = properties(rendered(helm, chart, {"brokers": {"config": settings}}))
    assert found["log.segment.bytes"] == "1073741824"
    assert found["min.insync.replicas"] == "3"
    assert found["a.switch"] == "false"


def test_users_choose_where_the_brokers_run(helm: str, chart: Path) -> None:
    spec = rendered(helm, chart, {"brokers": SCHEDULING})["StatefulSet/x-broker"]["spec"]
    assert spec["template"]["spec"].items() >= SCHEDULING.items()
    wrong = 'brokers.tolerations=[{"operator":"Maybe"}]'
    done = run(helm, "template", "x", str(chart), *KUBE, f"--set-json={wrong}")
    assert done.returncode
    assert "'Exists', 'Equal'" in done.stderr


@pytest.mark.parametrize("is_fixed", [True, False])
def test_the_platform_may_assign_user_ids(helm: str, chart: Path, is_fixed: bool) -> None:
    specs = pod_specs(rendered(helm, chart, {"quorate": {"fixedUserIds": is_fixed}}))
    context = specs["StatefulSet/x-broker"]["securityContext"]
    ids = dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), 10001) if is_fixed else {}
    others = {"runAsNonRoot", "fsGroupChangePolicy", "seccompProfile"}
    assert {name: value for name, value in context.items() if name not in others} == ids


def test_no_brokers_are_an_error(helm: str, chart: Path) -> None:
    none = "quorate.quorum.tls.brokerCertificates=0"
    done = run(helm, "template", "x", str(chart), *KUBE, f"--set={none}")
    assert done.returncode
    assert "quorate.quorum.tls.brokerCertificates is the number of brokers" in done.stderr
