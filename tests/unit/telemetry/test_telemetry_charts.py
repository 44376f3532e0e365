"""The dashboard and the alerts ask for metrics that exist, and the chart renders them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from quorate.telemetry.catalogue import METRICS, MetricKind
from quorate_operator.metrics import OperatorMetrics, ReportedBackup, ReportedQuorum

CHART = Path(__file__).resolve().parents[3] / "charts" / "quorate"
DASHBOARD = CHART / "dashboards" / "quorate.json"
RULES = CHART / "templates" / "prometheus-rules.yaml"
OPERATOR_RULES = CHART / "templates" / "operator-monitoring.yaml"

SERIES = {
    metric.prometheus_name for metric in METRICS if metric.kind is not MetricKind.HISTOGRAM
} | {
    metric.prometheus_name + suffix
    for metric in METRICS
    if metric.kind is MetricKind.HISTOGRAM
    for suffix in ("_bucket", "_count", "_sum")
}


def operator_labels() -> dict[str, set[str]]:
    """The labels of each metric of the operator, of a page with all of them."""
    metrics = OperatorMetrics()
    conditions = [{"type": "Ready", "status": "True"}]
    drill = {"time": "2026-11-26T08:00:00Z", "endOffset": 7, "seconds": 3}
    status = {"lastSuccess": drill["time"], "lastOffset": 9, "lastDrill": drill}
    status["conditions"] = conditions
    metrics.watch_quorums(lambda: [ReportedQuorum("lab", "q", status, 1.0)])
    metrics.watch_backups(lambda: [ReportedBackup("lab", "b", status, "2026-01-01T00:00:00Z")])
    metrics.watch_claims(lambda: {"lab": True})
    metrics.passed(is_done=True)
    metrics.acted("Resize", is_done=True)
    metrics.requested("GET", 200)
    return {
        sample.name: set(sample.labels)
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
        if sample.name.startswith("quorate_") and not sample.name.endswith("_created")
    }


OPERATOR = operator_labels()
ALERTS = {
    "QuorateNoLeader",
    "QuorateNoMajoritySlack",
    "QuorateVoterLags",
    "QuorateVoterChangeDoesNotCommit",
    "QuorateSyncSlow",
    "QuorateDiskNearlyFull",
    "QuorateLogsDiffer",
}


@pytest.mark.parametrize(
    "path", [DASHBOARD, RULES, OPERATOR_RULES], ids=["dashboard", "rules", "operator"]
)
def test_only_metrics_that_exist_are_asked_for(path: Path) -> None:
    asked = set(re.findall(r"\bquorate_[a-z0-9_]+", path.read_text()))
    assert len(asked) >= 5
    assert asked <= SERIES | OPERATOR.keys()


def test_the_page_of_metrics_has_those_of_the_operator() -> None:
    table = (CHART.parents[1] / "docs" / "metrics.md").read_text().partition("## The operator")[2]
    rows = re.findall(r"^\| `(quorate_\w+)`( by [^|]*)? \|", table, re.MULTILINE)
    assert {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows} == OPERATOR


def test_labels_are_those_of_the_metric() -> None:
    attributes = {m.prometheus_name: {a.replace("-", "_") for a in m.attributes} for m in METRICS}
    common = {"namespace", "pod", "job", "instance"}
    attributes |= OPERATOR
    for path in (DASHBOARD, RULES, OPERATOR_RULES):
        text = path.read_text().replace('\\"', '"')
        for name, selector in re.findall(r"(quorate_[a-z0-9_]+)\{([^}]*)\}", text):
            labels = set(re.findall(r'([a-z_]+)(?:=|!=|=~)"', selector))
            assert labels <= common | attributes.get(name, set()), (name, labels)


def test_the_dashboard_is_whole() -> None:
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
        assert panel["type"] == "row" or panel["targets"]


def rendered(*values: str) -> list[dict[str, Any]]:
    helm = os.environ.get("HELM") or shutil.which("helm")
    if helm is None:
        pytest.skip("helm is not installed (the variable HELM can name it)")
    command = [helm, "template", "meta", str(CHART), "-n", "prod", "--kube-version", "1.31.0"]
    done = subprocess.run(
        [*command, *(f"--set={value}" for value in values)],
        capture_output=True,
        text=True,
        check=True,
    )
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def test_each_expression_is_valid() -> None:
    """Prometheus' own grammar, with a rate interval as Grafana fills it in."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = [each["expr"] for panel in panels for each in panel.get("targets", ())]
    for made in rendered("operator.enabled=true", "prometheusRules.enabled=true"):
        for group in made["spec"]["groups"] if made["kind"] == "PrometheusRule" else ():
            asked += [rule["expr"] for rule in group["rules"]]
    assert len(asked) > 40
    for text in asked:
        promql_parser.parse(text.replace("$__rate_interval", "1m"))
    with pytest.raises(ValueError, match="unclosed left parenthesis"):
        promql_parser.parse("max by (namespace quorate_ready")


def test_a_backup_that_never_succeeded_becomes_old() -> None:
    text = (CHART / "templates" / "operator-monitoring.yaml").read_text()
    found = text.partition("alert: QuorateBackupOld")[2].partition("labels:")[0]
    assert "last_success_timestamp_seconds or quorate_backup_created_timestamp_seconds)" in found


def test_drills_that_have_not_succeeded_lately_are_old() -> None:
    text = OPERATOR_RULES.read_text()
    found = text.partition("alert: QuorateDrillOld")[2].partition("labels:")[0]
    expression = " ".join(found.partition(">-")[2].partition("for:")[0].split())
    template = re.search(r"\{\{ \$rules\.drillAgeSeconds \| default (\d+) \}\}", expression)
    assert template is not None
    age = yaml.safe_load((CHART / "values.yaml").read_text())["prometheusRules"]["drillAgeSeconds"]
    assert int(template[1]) == age, "an upgrade that reuses values has none"
    parsed = promql_parser.parse(expression.replace(template[0], template[1]))
    # Only QuorumBackups with drills have the condition.
    assert str(parsed.op) == "unless"
    assert 'type="Suspended",status="True"' in str(parsed.rhs)
    assert str(parsed.lhs.op) == "and"
    assert 'quorate_backup_condition{type="Drilled"}' in str(parsed.lhs.rhs)
    assert f"> {age}" in str(parsed.lhs.lhs)
    either = (
        "quorate_backup_last_drill_timestamp_seconds or quorate_backup_created_timestamp_seconds"
    )
    assert either in expression


def test_all_of_it_is_off_by_default() -> None:
    kinds = {each["kind"] for each in rendered()}
    assert not kinds & {"PrometheusRule", "PodMonitor", "ConfigMap"}


def test_the_chart_renders_dashboard_and_rules() -> None:
    switches = (
        "dashboards.enabled=true",
        "prometheusRules.enabled=true",
        "podMonitor.enabled=true",
    )
    found = {each["kind"]: each for each in rendered(*switches)}
    assert json.loads(found["ConfigMap"]["data"]["quorate.json"]) == json.loads(
        DASHBOARD.read_text()
    )
    (group,) = found["PrometheusRule"]["spec"]["groups"]
    assert {rule["alert"] for rule in group["rules"]} >= ALERTS
    for rule in group["rules"]:
        assert 'namespace="prod",pod=~"meta-[0-9]+"' in rule["expr"]
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
    endpoint = found["PodMonitor"]["spec"]["podMetricsEndpoints"][0]
    assert (endpoint["port"], endpoint["path"]) == ("http", "/metrics")
