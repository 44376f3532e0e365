"""What a release pushes to a registry: the images and the chart; and the signatures of all."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.lab import helm_program
from tests.tools.release_files import SBOMS, SIGNATURE, SUMS, files
from tests.tools.release_steps import OUTPUT, ROOT, ReleaseError, run, version

PLATFORMS = "linux/amd64,linux/arm64"
IMAGES = {"controller": "quorate", "operator": "quorate-operator", "spark": "quorate-spark"}
"""Repositories by target of the Dockerfile, as the chart names them."""
PUSHED = "pushed.json"
"""In the folder of the release: what was pushed, each as REPOSITORY@DIGEST."""


def images(registry: str, output: Path = OUTPUT) -> None:
    """Build the images for all platforms, and push them with their provenance."""
    for target, name in IMAGES.items():
        repository = f"{registry.lower()}/{name}"
        with tempfile.TemporaryDirectory() as folder:
            metadata = Path(folder) / "metadata.json"
            options = ("--platform", PLATFORMS, "--target", target, "--provenance", "mode=max")
            tags = ("--tag", f"{repository}:{version()}", "--push")
            described = ("--metadata-file", str(metadata))
            run("docker", "buildx", "build", *options, *tags, *described, str(ROOT))
            digest = json.loads(metadata.read_text())["containerimage.digest"]
        note_pushed(target, f"{repository}@{digest}", output)


def push_chart(registry: str, output: Path = OUTPUT) -> None:
    """Push the chart, which `chart` has packaged."""
    package = output / f"quorate-{version()}.tgz"
    if not package.exists():
        raise ReleaseError(f"{package} is missing: poe release-chart")
    charts = f"{registry.lower()}/charts"
    printed = run(helm_program() or "helm", "push", str(package), f"oci://{charts}")
    digest = re.search(r"sha256:[0-9a-f]{64}", printed)
    if digest is None:
        raise ReleaseError("helm did not print the digest of what it pushed")
    note_pushed("chart", f"{charts}/quorate@{digest[0]}", output)


def note_pushed(what: str, reference: str, output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    path = output / PUSHED
    pushed = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**pushed, what: reference}, indent=1) + "\n")
    print(reference)


def sign(output: Path = OUTPUT) -> None:
    """Sign files, images and chart with the identity of this process, and attest the SBOMs."""
    path = output / PUSHED
    pushed = json.loads(path.read_text()) if path.exists() else {}
    for command in signing(pushed, [*files(output), output / SUMS]):
        run("cosign", *command)


def signing(pushed: dict[str, str], paths: Sequence[Path]) -> list[tuple[str, ...]]:
    """The arguments of cosign that sign what was pushed, and files."""
    commands: list[tuple[str, ...]] = []
    for what, reference in pushed.items():
        commands.append(("sign", "--yes", reference))
        sbom = SBOMS / f"{what}.cdx.json"
        if what in IMAGES:
            predicate = ("--predicate", str(sbom), "--type", "cyclonedx")
            commands.append(("attest", "--yes", *predicate, reference))
    for path in paths:
        bundle = ("--bundle", f"{path}{SIGNATURE}")
        commands.append(("sign-blob", "--yes", *bundle, str(path)))
    return commands
