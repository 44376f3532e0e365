"""The entry of the pipeline's image: the command, or an executor that a Kubernetes master wants.

Spark starts the pods that execute tasks with the one argument `executor` and tells the rest in
their environment. That, and the command line made of it, is Spark's contract with images; its own
image has a shell script for it. Any other arguments are those of the command `quorate`.

Rules: the process is replaced, so that who ends the pod ends what works in it. What the environment
lacks is told in one line.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from quorate.spark.errors import PipelineError
from quorate.spark.session import java_command

EXECUTOR = "executor"
BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
FAILED = 1
_JAVA_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)", re.ASCII)
_ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
_MEMORY = "SPARK_EXECUTOR_MEMORY"
_CLASSES = "SPARK_CLASSPATH"


def executor_command(environment: Mapping[str, str], java: str, jars: Path) -> list[str]:
    """The JVM that executes tasks. PipelineError names what the environment lacks.

    jars: the directory of Spark's own; what the driver adds to the class path goes before them.
    """
    missing = [name for name in (*_ARGUMENTS.values(), _MEMORY) if not environment.get(name)]
    if missing:
        raise PipelineError(f"an executor of Spark needs the variables {', '.join(missing)}")
    numbered = [(_JAVA_OPTION.fullmatch(name), text) for name, text in environment.items()]
    options = sorted((int(found[1]), text) for found, text in numbered if found)
    heap = environment[_MEMORY]
    classes = [part for part in (environment.get(_CLASSES), f"{jars}/*") if part]
    return [
        java,
        *(text for _, text in options),
        f"-Xms{heap}",
        f"-Xmx{heap}",
        "-cp",
        ":".join(classes),
        BACKEND,
        *(text for name, source in _ARGUMENTS.items() for text in (name, environment[source])),
    ]


def _spark_jars() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise PipelineError("pyspark is not installed: pip install 'quorate[spark]'")
    return Path(spec.origin).parent / "jars"


def command(arguments: Sequence[str]) -> list[str]:
    """What this process is to become. PipelineError."""
    if list(arguments) != [EXECUTOR]:
        return [sys.executable, "-m", "quorate.cli.main", *arguments]
    java = java_command()
    if java is None:
        raise PipelineError("Java is not installed")
    return executor_command(os.environ, java, _spark_jars())


def main() -> None:
    """Become it."""
    try:
        wanted = command(sys.argv[1:])
    except PipelineError as error:
        print(f"quorate: error: {error.reason}", file=sys.stderr)
        sys.exit(FAILED)
    os.execv(wanted[0], wanted)  # noqa: S606 (no shell is meant to be between)


if __name__ == "__main__":
    main()
