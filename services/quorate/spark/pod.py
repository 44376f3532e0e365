"""The entry point of the pipeline's image: the command, or a Spark executor on Kubernetes.

Spark starts executor pods with the single argument `executor` and passes the rest in environment
variables. These, and the command line built from them, are Spark's contract with images; Spark's
own image implements it in a shell script. Any other arguments are passed to the command `quorate`.

Rules: the process replaces itself (exec), so that a signal that ends the pod reaches the actual
program. An error message of one line names missing variables.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from quorate.spark.errors import PipelineError
from quorate.spark.java import java_command

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
    """The command line of an executor's JVM. Raises PipelineError, which names missing variables.

    jars: the directory of Spark's own jars. The driver's additions to the class path precede them.
    """
    missing = [name for name in (*_ARGUMENTS.values(), _MEMORY) if not environment.get(name)]
    if missing:
        raise PipelineError(
            f"a Spark executor needs the environment variables {', '.join(missing)}"
        )
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
    """The command line that replaces this process.

    Raises PipelineError if an executor lacks Java, PySpark or environment variables.
    """
    if list(arguments) != [EXECUTOR]:
        return [sys.executable, "-m", "quorate.cli.main", *arguments]
    java = java_command()
    if java is None:
        raise PipelineError("Java is not installed")
    return executor_command(os.environ, java, _spark_jars())


def main() -> None:
    """Replace this process by the command."""
    try:
        wanted = command(sys.argv[1:])
    except PipelineError as error:
        print(f"quorate: error: {error.reason}", file=sys.stderr)
        sys.exit(FAILED)
    os.execv(wanted[0], wanted)  # noqa: S606 (no shell is intended)


if __name__ == "__main__":
    main()
