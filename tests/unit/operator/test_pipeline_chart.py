"""The chart's pipeline, as helm renders it: in one pod, or with executors."""

from __future__ import annotations

import pytest
import yaml

from tests.unit.operator.test_operator_chart import Object, helm, rendered

__all__ = ["helm"]
ON = ("pipeline.enabled=true", "pipeline.claim=tables")


def template(made: dict[str, Object]) -> Object:
    found: Object = made["CronJob/x-pipeline"]["spec"]["jobTemplate"]["spec"]["template"]
    return found


def settings(made: dict[str, Object]) -> dict[str, str]:
    text = made["ConfigMap/x-pipeline"]["data"]["spark-defaults.conf"]
    return dict(line.split("=", 1) for line in text.splitlines())


def test_alone_it_asks_nothing_of_kubernetes(helm: str) -> None:
    made = rendered(helm, *ON, "pipeline.cores=3")
    assert not {"ServiceAccount/x-pipeline", "Role/x-pipeline"} & set(made)
    pod = template(made)["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert "--master=local[3]" in pod["containers"][0]["args"]
    assert settings(made) == {"spark.driver.memory": "512m"}
    assert set(made["ConfigMap/x-pipeline"]["data"]) == {"spark-defaults.conf"}


def test_it_continues_what_an_earlier_run_wrote(helm: str) -> None:
    assert "--update" in template(rendered(helm, *ON))["spec"]["containers"][0]["args"]


@pytest.mark.parametrize("tls", [True, False])
def test_executors_are_pods_like_the_jobs_own(helm: str, tls: bool) -> None:
    made = rendered(
        helm,
        *ON,
        "pipeline.executors.count=2",
        f"quorum.tls.enabled={str(tls).lower()}",
        "imagePullSecrets[0].name=ours",
    )
    driver = template(made)
    executor = yaml.safe_load(made["ConfigMap/x-pipeline"]["data"]["executor.yaml"])
    assert executor["metadata"]["labels"] == driver["metadata"]["labels"]
    shared = ("securityContext", "imagePullSecrets", "enableServiceLinks")
    assert {n: executor["spec"][n] for n in shared} == {n: driver["spec"][n] for n in shared}
    (mine,), (other,) = driver["spec"]["containers"], executor["spec"]["containers"]
    assert mine["securityContext"] == other["securityContext"]
    assert other["securityContext"]["readOnlyRootFilesystem"] is True
    own = [mount for mount in mine["volumeMounts"] if mount["name"] != "spark"]
    assert own == other["volumeMounts"]
    assert ("tls" in {mount["name"] for mount in own}) == tls
    assert executor["spec"]["volumes"] == [
        volume for volume in driver["spec"]["volumes"] if volume["name"] != "spark"
    ]
    assert executor["spec"]["automountServiceAccountToken"] is False


def test_who_asks_for_executors_may_have_pods_and_nothing_else(helm: str) -> None:
    made = rendered(helm, *ON, "pipeline.executors.count=2", "pipeline.image.tag=three")
    pod = template(made)["spec"]
    assert "--master=k8s://https://kubernetes.default.svc" in pod["containers"][0]["args"]
    assert pod["serviceAccountName"] == "x-pipeline"
    assert pod["automountServiceAccountToken"] is True
    (rule,) = made["Role/x-pipeline"]["rules"]
    assert (rule["apiGroups"], rule["resources"]) == ([""], ["pods"])
    (subject,) = made["RoleBinding/x-pipeline"]["subjects"]
    assert (subject["name"], subject["namespace"]) == ("x-pipeline", "lab")
    told = settings(made)
    assert told["spark.executor.instances"] == "2"
    assert told["spark.kubernetes.container.image"] == pod["containers"][0]["image"]
    assert told["spark.kubernetes.namespace"] == "lab"
    assert told["spark.authenticate"] == told["spark.network.crypto.enabled"] == "true"


def test_more_of_sparks_settings(helm: str) -> None:
    made = rendered(helm, *ON, "pipeline.sparkConf.spark\\.local\\.dir=/scratch")
    assert settings(made)["spark.local.dir"] == "/scratch"
