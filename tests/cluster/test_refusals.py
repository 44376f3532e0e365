"""What the API server refuses, by the rules of the CRD."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.conftest import namespace
from tests.cluster.lab import Images, Lab

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def refusing(images: Images) -> Iterator[Lab]:
    """A Quorum that nobody tends."""
    with namespace(images) as made:
        made.install("operator.replicas=0")
        yield made


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        ({"replicas": 0}, "replicas"),
        ({"replicas": 10}, "replicas"),
        ({"storage": {"size": "9Gi"}}, "size cannot be changed"),
        ({"storage": None}, "cannot be"),
        ({"tls": {"enabled": False}}, "enabled cannot be changed"),
        ({"tls": {"certManager": {"enabled": True}}}, "enabled cannot be changed"),
        ({"config": {"node.id": "7"}}, "the operator decides"),
        ({"config": {"ssl.key.location": "x"}}, "the operator decides"),
    ],
)
def test_what_would_break_it_is_refused(refusing: Lab, patch: dict[str, Any], said: str) -> None:
    done = subprocess.run(
        [
            "kubectl",
            "-n",
            refusing.namespace,
            "patch",
            "quorum",
            refusing.name,
            "--type=merge",
            "-p",
            json.dumps({"spec": patch}),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0, done.stdout
    assert said in done.stderr


def test_scale_is_validated_too(refusing: Lab) -> None:
    done = subprocess.run(
        ["kubectl", "-n", refusing.namespace, "scale", f"quorum/{refusing.name}", "--replicas=10"],
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0, done.stdout
