"""The files of a release: wheel, sdist, protos, chart, checksums."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.lab import helm_program
from tests.tools.documents import rewrite_links
from tests.tools.release_steps import (
    CHART,
    OUTPUT,
    ROOT,
    ReleaseError,
    changelog_sections,
    export,
    run,
    version,
)

SBOMS = ROOT / "build/sbom"
SUMS = "SHA256SUMS"
NOTES = "NOTES.md"
SIGNATURE = ".sigstore.json"


def dist(url: str = "", output: Path = OUTPUT) -> None:
    """Wheel and sdist of the last commit, checked. url: see `prepare`."""
    run("twine", "check", "--strict", *map(str, build(url, output)))


def build(url: str, output: Path) -> tuple[Path, Path]:
    """Wheel and sdist of the last commit; the sdist builds the same wheel."""
    output.mkdir(parents=True, exist_ok=True)
    hatchling = (sys.executable, "-m", "hatchling", "build")
    with tempfile.TemporaryDirectory() as folder:
        sources = export(Path(folder) / "sources")
        prepare(sources, url, f"v{version()}")
        built = Path(folder) / "built"
        run(*hatchling, "-d", str(built), cwd=sources)
        (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
        again = Path(folder) / "again"
        again.mkdir()
        run("tar", "-xzf", str(sdist), "--strip-components=1", "-C", str(again))
        run(*hatchling, "-t", "wheel", "-d", str(again / "dist"), cwd=again)
        if (again / "dist" / wheel.name).read_bytes() != wheel.read_bytes():
            raise ReleaseError(f"{sdist.name} does not build {wheel.name}")
        return Path(shutil.copy(wheel, output)), Path(shutil.copy(sdist, output))


def prepare(sources: Path, url: str, tag: str) -> None:
    """Give README.md links that work on a package index, and pyproject.toml the project's URLs.

    Without a URL there are none, and README.md keeps only its links to other sites.
    """
    readme = sources / "README.md"
    readme.write_text(index_readme(readme.read_text(), url, tag))
    if url:
        urls = {
            "Repository": url,
            "Documentation": f"{url}/blob/{tag}/docs/index.md",
            "Changelog": f"{url}/blob/{tag}/CHANGELOG.md",
            "Issues": f"{url}/issues",
        }
        table = "".join(f'{name} = "{target}"\n' for name, target in urls.items())
        pyproject = sources / "pyproject.toml"
        before, heading, after = pyproject.read_text().partition("\n[project.scripts]\n")
        pyproject.write_text(f"{before}\n[project.urls]\n{table}{heading}{after}")


def index_readme(text: str, url: str, tag: str) -> str:
    """README.md for a package index, where relative links lead nowhere."""

    def moved(target: str, *, is_image: bool) -> str | None:
        if re.match(r"[a-z]+:|#", target):
            return target
        return f"{url}/{'raw' if is_image else 'blob'}/{tag}/{target}" if url else None

    return rewrite_links(text, moved)


def protos(output: Path = OUTPUT) -> None:
    """The .proto files and the license, as they are in this checkout."""
    output.mkdir(parents=True, exist_ok=True)
    name = f"quorate-protos-{version()}"
    files = {f"{name}/LICENSE": ROOT / "LICENSE"}
    for path in sorted((ROOT / "proto").rglob("*.proto")):
        files[f"{name}/{path.relative_to(ROOT / 'proto')}"] = path
    target = output / f"{name}.tar.gz"
    target.write_bytes(reproducible_archive({n: p.read_bytes() for n, p in files.items()}))
    print(target)


def reproducible_archive(files: dict[str, bytes]) -> bytes:
    """A .tar.gz that depends on the names and contents alone."""
    tarred = io.BytesIO()
    with tarfile.open(fileobj=tarred, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o644
            tar.addfile(member, io.BytesIO(content))
    return gzip.compress(tarred.getvalue(), mtime=0)


def chart(registry: str = "", output: Path = OUTPUT) -> None:
    """The chart as an archive. registry: where its images are; as in a checkout by default."""
    output.mkdir(parents=True, exist_ok=True)
    helm = helm_program() or "helm"
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / CHART.name
        shutil.copytree(CHART, copied)
        if registry:
            values = copied / "values.yaml"
            values.write_text(with_registry(values.read_text(), registry))
        run(helm, "lint", "--strict", str(copied))
        run(helm, "package", str(copied), "--destination", str(output))


def with_registry(values: str, registry: str) -> str:
    """values.yaml with the images of a registry."""
    return re.sub(r"(?m)^( +repository: )(quorate\S*)$", rf"\1{registry.lower()}/\2", values)


def checksums(output: Path = OUTPUT) -> None:
    """Add the SBOMs, if `poe sbom` wrote any, and write the sums of all files."""
    for sbom in sorted(SBOMS.glob("*.cdx.json")):
        shutil.copy(sbom, output / f"quorate-{version()}-{sbom.name}")
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in files(output)
    ]
    if not lines:
        raise ReleaseError(f"{os.path.relpath(output)} has no files")
    (output / SUMS).write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def notes(output: Path = OUTPUT) -> None:
    """What CHANGELOG.md says of this version, for the page of the release."""
    section = changelog_sections((ROOT / "CHANGELOG.md").read_text()).get(version())
    if not section:
        raise ReleaseError(f"CHANGELOG.md has no section {version()}")
    output.mkdir(parents=True, exist_ok=True)
    (output / NOTES).write_text(section + "\n")
    print(output / NOTES)


def files(output: Path = OUTPUT) -> Iterator[Path]:
    """The files that are published, without their sums and signatures."""
    for path in sorted(output.glob("*")):
        published = path.name.endswith((".whl", ".tar.gz", ".tgz", ".cdx.json"))
        if published and path.is_file():
            yield path
