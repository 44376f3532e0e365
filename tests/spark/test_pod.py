"""The entry of the pipeline's image: what an executor's environment becomes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from quorate.spark import pod
from quorate.spark.errors import PipelineError

TOLD = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.7:7078",
    "SPARK_EXECUTOR_ID": "2",
    "SPARK_EXECUTOR_CORES": "1",
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_APPLICATION_ID": "spark-application-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.8",
    "SPARK_EXECUTOR_POD_NAME": "quorate-exec-2",
    "SPARK_RESOURCE_PROFILE_ID": "0",
}
JARS = Path("/opt/spark/jars")


def test_an_executor_is_the_jvm_that_its_environment_describes() -> None:
    told = {**TOLD, **{f"SPARK_JAVA_OPT_{n}": f"-Dn={n}" for n in (10, 9, 0)}, "HOME": "/tmp"}
    command = pod.executor_command(told, "/opt/java/bin/java", JARS)
    backend = command.index(pod.BACKEND)
    assert command[:backend] == [
        *("/opt/java/bin/java", "-Dn=0", "-Dn=9", "-Dn=10", "-Xms512m", "-Xmx512m"),
        *("-cp", "/opt/spark/jars/*"),
    ]
    arguments = command[backend + 1 :]
    assert dict(zip(arguments[::2], arguments[1::2], strict=True)) == {
        "--driver-url": TOLD["SPARK_DRIVER_URL"],
        "--executor-id": "2",
        "--cores": "1",
        "--app-id": "spark-application-1",
        "--hostname": "10.0.0.8",
        "--resourceProfileId": "0",
        "--podName": "quorate-exec-2",
    }


def test_what_the_driver_adds_to_the_class_path_comes_first() -> None:
    command = pod.executor_command({**TOLD, "SPARK_CLASSPATH": "/jars/s3.jar"}, "java", JARS)
    assert command[command.index("-cp") + 1] == "/jars/s3.jar:/opt/spark/jars/*"


def test_what_the_environment_lacks_is_named() -> None:
    told = {name: text for name, text in TOLD.items() if "ID" not in name}
    with pytest.raises(PipelineError) as raised:
        pod.executor_command(told, "java", JARS)
    assert raised.value.reason == (
        "a Spark executor needs the environment variables "
        "SPARK_EXECUTOR_ID, SPARK_APPLICATION_ID, SPARK_RESOURCE_PROFILE_ID"
    )


def test_anything_else_is_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[list[str]] = []
    monkeypatch.setattr("os.execv", lambda _, command: became.append(command))
    monkeypatch.setattr(sys, "argv", ["pod", "pipeline", "run", "executor"])
    pod.main()
    assert became == [[sys.executable, "-m", "quorate.cli.main", "pipeline", "run", "executor"]]


def test_an_executor_without_a_driver_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["pod", "executor"])
    for name in TOLD:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SystemExit) as ended:
        pod.main()
    assert ended.value.code == pod.FAILED
    said = capsys.readouterr().err
    assert said.startswith("quorate: error: ")
    assert said.count("\n") == 1
