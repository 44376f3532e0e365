"""What users name in files and scripts, of this version and of release 0.1.0."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from quorate.cli.broker_settings import BROKER
from quorate.controller.config import CONTROLLER

from tests.releases import probe
from tests.releases.contents import INTERFACES

ROOT = Path(__file__).resolve().parents[2]
CRD = "charts/quorate/crds/quorums.quorate.dev.yaml"

Interfaces = dict[str, Any]


def released() -> Interfaces:
    """Those of 0.1.0."""
    found: Interfaces = json.loads(INTERFACES.read_text())
    return found


def current() -> Interfaces:
    """Those of this version."""
    settings = {"controller": sorted(CONTROLLER.settings), "broker": sorted(BROKER.settings)}
    crd = schema((ROOT / CRD).read_text())
    return {"commands": probe.commands(), "settings": settings, "quorum": crd}


def schema(text: str) -> dict[str, dict[str, Any]]:
    """Each field of each served version of a custom resource: its type, enum, and so on."""
    crd = yaml.safe_load(text)
    return {
        f"{version['name']}{path}": limits
        for version in crd["spec"]["versions"]
        if version["served"]
        for path, limits in _fields(version["schema"]["openAPIV3Schema"], "")
    }


def _fields(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    kept = ("enum", "maximum", "maxItems", "maxLength", "minimum", "pattern", "required", "type")
    yield path, {name: node[name] for name in kept if name in node}
    for name, child in node.get("properties", {}).items():
        yield from _fields(child, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if isinstance(node.get(name), dict):
            yield from _fields(node[name], f"{path}.{name}")


def of_release(commit: str, probed: str) -> Interfaces:
    """Those of 0.1.0, from what its probe printed and from the history of git."""
    command = ("git", "-C", str(ROOT), "show", f"{commit}:{CRD}")
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {**json.loads(probed), "quorum": schema(text)}
