"""The cluster that KUBECONFIG names, the images in it, and releases of the chart."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster import figures
from tests.cluster.lab import CHART, ROOT, SHARED, Images, Lab, Writer, helm_program, run

IMAGES_VARIABLE = "QUORATE_TEST_IMAGES"
RUNS_VARIABLE = "QUORATE_TEST_RUNS"
LAB = SHARED / "kube"
BASE = "python:3.13-slim"
HINT = (
    f"set KUBECONFIG to a cluster's (`kind create cluster` makes one"
    f"{f', and so does {LAB}/up' if (LAB / 'up').exists() else ''}), and {IMAGES_VARIABLE} to the "
    "two images that it has, as in `quorate:dev,quorate-operator:dev` (`docker build --target "
    "controller -t quorate:dev .`, `docker build --target operator -t quorate-operator:dev .`, "
    "`kind load docker-image quorate:dev quorate-operator:dev`)"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--runs",
        type=int,
        default=int(os.environ.get(RUNS_VARIABLE, "1")),
        help=f"how often the measured scenario runs ({RUNS_VARIABLE})",
    )
    parser.addoption(
        "--spark", action="store_true", help="build the pipeline's image and run it (large, slow)"
    )
    parser.addoption(
        "--kafka", action="store_true", help="build an image of Kafka and run its brokers (slow)"
    )
    parser.addoption(
        "--upgrade", action="store_true", help="build the images of 0.1.0 and upgrade it (slow)"
    )
    parser.addoption(
        "--defects", action="store_true", help="run the tests of defects that take minutes"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "measured_run" in metafunc.fixturenames:
        runs = range(1, metafunc.config.getoption("--runs") + 1)
        metafunc.parametrize("measured_run", runs)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("defects") and not config.getoption("--defects"):
            reason = "it takes minutes, with releases of its own: --defects runs it"
            item.add_marker(pytest.mark.skip(reason))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in figures.table():
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def images() -> Images:
    """Skip with a hint where there is no cluster, or no image for it."""
    if not os.environ.get("KUBECONFIG"):
        pytest.skip(f"no cluster: {HINT}")
    for name, found in (("kubectl", shutil.which("kubectl")), ("helm", helm_program())):
        if found is None:
            pytest.skip(f"{name} is not installed; {HINT}")
    if subprocess.run(["kubectl", "version"], capture_output=True).returncode != 0:
        pytest.fail(f"the cluster of KUBECONFIG does not answer; {HINT}")
    # A cluster that was used before may have an older one, which drops fields it does not know.
    crds = ("--server-side", "--force-conflicts", "-f", str(CHART / "crds"))
    run("kubectl", "apply", *crds)
    given = os.environ.get(IMAGES_VARIABLE)
    if given:
        controller, _, operator = given.partition(",")
        return Images(controller, operator)
    if not can_build():
        pytest.skip(f"{IMAGES_VARIABLE} is not set; {HINT}")
    return build()


def can_build() -> bool:
    """Whether `build_image` can load an image into the cluster: it is the lab."""
    names = run("kubectl", "get", "nodes", "-o", "name").split()
    return (LAB / "load").exists() and names == ["node/lab"]


def build() -> Images:
    """Images of the working tree, in the lab's node."""
    made = Images("quorate:test", "quorate-operator:test")
    base = subprocess.run([str(LAB / "image"), BASE], capture_output=True, text=True)
    if base.returncode != 0:
        pytest.fail(f"{LAB}/image {BASE}: {base.stderr[-2000:]}")
    build_image(made.controller, "--target", "controller")
    build_image(made.operator, "--target", "operator")
    return made


def build_image(image: str, *options: str, folder: Path = ROOT) -> str:
    """An image from a folder with a Dockerfile, in the lab's node; its reference."""
    began = time.monotonic()
    base = ("--build-arg", f"BASE={BASE}")  # no registry has to be reachable
    where = (str(folder / "Dockerfile"), str(folder))
    command = [str(LAB / "load"), image, *where, *options, "--layers", *base]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(command)}: {done.stderr[-2000:]}")
    print(f"\nbuilt {image} in {time.monotonic() - began:.0f} s")
    return image


@contextmanager
def namespace(images: Images) -> Iterator[Lab]:
    """An empty namespace, whose pods must satisfy the restricted Pod Security Standard."""
    name = f"quorate-{uuid.uuid4().hex[:6]}"
    run("kubectl", "create", "namespace", name)
    label = "pod-security.kubernetes.io/enforce=restricted"
    run("kubectl", "label", "namespace", name, label)
    try:
        yield Lab(name, images)
    finally:
        if not os.environ.get("QUORATE_TEST_KEEP"):
            run("kubectl", "delete", "namespace", name, "--wait=false")


STEADY = r"quorum.config.controller\.quorum\.fetch\.timeout\.ms=4000"
"""For the chart, where no append may fail: a machine that stalls for a second does not elect."""


@pytest.fixture
def lab(images: Images) -> Iterator[Lab]:
    """A namespace for one test."""
    with namespace(images) as made:
        yield made


@pytest.fixture(scope="module")
def standing(images: Images) -> Iterator[Lab]:
    """A release of three voters that the tests of a module share; each leaves it that way."""
    with namespace(images) as made:
        made.install(STEADY)
        made.until_ready(3)
        yield made


@pytest.fixture
def start_writer() -> Iterator[Callable[[Lab], Writer]]:
    """Starts writers; those that still write at the end are deleted."""
    made: list[Writer] = []

    def start(lab: Lab) -> Writer:
        writer = Writer(lab, f"writer-{uuid.uuid4().hex[:4]}")
        made.append(writer)
        writer.start()
        return writer

    yield start
    for writer in made:
        writer.delete()
