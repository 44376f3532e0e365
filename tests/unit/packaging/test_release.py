"""The release workflow runs poe tasks that exist, and its steps do what they say."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.lab import helm_program
from tests.tools import release, release_files, release_images, release_steps
from tests.tools.documents import ROOT

WORKFLOW = ROOT / ".github/workflows/release.yml"
TASKS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["poe"]["tasks"]
VERSION = release_steps.version()


@pytest.fixture(scope="module")
def jobs() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    return found


def steps(jobs: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in jobs.values() for step in job["steps"]]


def commands(jobs: dict[str, Any]) -> list[str]:
    runs = (step["run"] for step in steps(jobs) if "run" in step)
    return [line for run in runs for line in run.splitlines()]


def test_the_workflow_runs_poe_tasks_that_exist(jobs: dict[str, Any]) -> None:
    named = {found[1] for line in commands(jobs) for found in re.finditer(r"\bpoe ([\w-]+)", line)}
    assert named <= TASKS.keys()
    assert {task for task in TASKS if task.startswith("release-")} <= named


def test_each_task_of_a_release_is_a_step() -> None:
    tasks = {task["cmd"].split()[-1] for name, task in TASKS.items() if name.startswith("release-")}
    assert tasks == release.STEPS.keys()


def test_the_workflow_installs_what_is_locked(jobs: dict[str, Any]) -> None:
    installs = [line for line in commands(jobs) if "pip install" in line]
    assert installs
    for line in installs:
        assert "--require-hashes" in line, line
        lock = re.search(r"-r (\S+)", line)
        assert lock is not None
        assert (ROOT / lock[1]).is_file(), line


def test_actions_are_pinned(jobs: dict[str, Any]) -> None:
    """By commit, with the version beside it."""
    used = re.findall(r"uses: (\S+?)@(\S+)(.*)", WORKFLOW.read_text())
    assert len(used) == sum("uses" in step for step in steps(jobs))
    pins = {name: (pin, comment) for name, pin, comment in used}
    assert len(pins) == len(set(used)), "one version of each action"
    for name, (pin, comment) in pins.items():
        assert re.fullmatch(r"[0-9a-f]{40}", pin), name
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), name


def test_only_the_job_that_publishes_may_write(jobs: dict[str, Any]) -> None:
    workflow = yaml.safe_load(WORKFLOW.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    writing = {name for name, job in jobs.items() if "permissions" in job}
    assert writing == {"publish"}
    assert jobs["publish"]["if"] == "github.ref_type == 'tag'"
    assert set(jobs["publish"]["needs"]) == jobs.keys() - {"publish"}


def test_the_matrix_has_the_supported_versions(jobs: dict[str, Any]) -> None:
    from tests.tools import pythons

    assert jobs["pythons"]["strategy"]["matrix"]["python"] == pythons.wanted()


def test_the_version_is_the_same_everywhere() -> None:
    assert release_steps.problems() == []


CHANGELOG = "# Changelog\n\n## Unreleased\n\n## 1.2.0\n\n- One.\n\n## 1.1.0\n\n- Two.\n"


@pytest.mark.parametrize(
    ("tag", "changelog", "problem"),
    [
        ("v1.2.0", CHANGELOG, None),
        ("v1.2.0", CHANGELOG.replace("## Unreleased\n\n", ""), None),
        ("1.2.0", CHANGELOG, "the tag is 1.2.0"),
        ("v1.1.0", CHANGELOG, "expected v1.2.0"),
        ("v1.2.0", CHANGELOG.replace("## Unreleased\n", "## Unreleased\n\n- X\n"), "unreleased"),
        ("v1.2.0", CHANGELOG.replace("## 1.2.0", "## 1.2.1"), "no section 1.2.0"),
        ("v1.2.0", CHANGELOG.replace("- One.\n", ""), "no section 1.2.0"),
    ],
)
def test_a_tag_that_does_not_fit_is_found(tag: str, changelog: str, problem: str | None) -> None:
    found = release_steps.tag_problems(tag, "1.2.0", changelog)
    assert bool(found) == (problem is not None)
    assert problem is None or problem in found[0]


@pytest.mark.parametrize("changed", ["services/quorate/version.py", "charts/quorate/Chart.yaml"])
def test_another_version_somewhere_is_found(tmp_path: Path, changed: str) -> None:
    for name in ("pyproject.toml", "services/quorate/version.py", "charts/quorate/Chart.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / name).read_text()
        (tmp_path / name).write_text(text.replace(VERSION, "9.9.9") if name == changed else text)
    assert any(changed in each for each in release_steps.problems(root=tmp_path))


def test_a_wrong_command_line_gets_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["nothing"], ["protos", "more"], ["images"]):
        assert release.main(arguments) == 2
        assert "release.py check" in capsys.readouterr().err


def test_a_tag_of_no_release_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert release.main(["check", "v0.0.0"]) == 1
    assert "expected v" in capsys.readouterr().err


def test_the_protos_are_the_same_each_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        release_files.protos(tmp_path / name)
    (one,), (two,) = (tmp_path / "one").iterdir(), (tmp_path / "two").iterdir()
    assert one.read_bytes() == two.read_bytes()
    with tarfile.open(one) as tar:
        names = tar.getnames()
    published = {f"quorate-protos-{VERSION}/{p.relative_to(ROOT / 'proto')}" for p in protos()}
    assert set(names) == published | {f"quorate-protos-{VERSION}/LICENSE"}


def protos() -> list[Path]:
    return list((ROOT / "proto").rglob("*.proto"))


@pytest.mark.slow
def test_wheel_and_sdist_are_built_from_the_last_commit(tmp_path: Path) -> None:
    """The sdist builds the same wheel, or `build` fails."""
    if subprocess.run(("git", "rev-parse", "HEAD"), cwd=ROOT, capture_output=True).returncode:
        pytest.skip("this is no clone")
    wheel, sdist = release_files.build("https://example.org/owner/quorate", tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith("METADATA"))
        metadata = archive.read(name).decode()
    assert "Project-URL: Repository, https://example.org/owner/quorate" in metadata
    assert "](docs/" not in metadata
    with tarfile.open(sdist) as tar:
        assert f"quorate-{VERSION}/proto/quorate/v1/raft.proto" in tar.getnames()


def test_the_chart_gets_the_images_of_a_registry(tmp_path: Path) -> None:
    if helm_program() is None:
        pytest.skip("helm is in none of HELM, the path and the lab's tools")
    release_files.chart("Registry.example.org/Owner", tmp_path)
    (package,) = tmp_path.iterdir()
    assert package.name == f"quorate-{VERSION}.tgz"
    with tarfile.open(package) as tar:
        file = tar.extractfile("quorate/values.yaml")
        assert file is not None
        values = yaml.safe_load(file.read())
    found = {values[name]["image"]["repository"] for name in ("operator", "pipeline")}
    found.add(values["image"]["repository"])
    assert found == {f"registry.example.org/owner/{n}" for n in release_images.IMAGES.values()}


def test_the_notes_are_those_of_the_version(tmp_path: Path) -> None:
    release_files.notes(tmp_path)
    text = (tmp_path / release_files.NOTES).read_text()
    assert text.startswith("- ")
    assert "\n## " not in text
    assert text.strip() in (ROOT / "CHANGELOG.md").read_text()


def test_checksums_are_of_each_file(tmp_path: Path) -> None:
    for name in ("a.whl", "b.tgz", "c.whl.sigstore.json", "pushed.json"):
        (tmp_path / name).write_bytes(name.encode())
    release_files.checksums(tmp_path)
    lines = (tmp_path / release_files.SUMS).read_text().splitlines()
    sums = dict(reversed(line.split("  ")) for line in lines)
    assert {"a.whl", "b.tgz"} <= sums.keys()
    assert not {"c.whl.sigstore.json", "pushed.json"} & sums.keys()
    assert sums["a.whl"] == hashlib.sha256(b"a.whl").hexdigest()


def tool(folder: Path, name: str, script: str) -> None:
    """A program of ours in place of one that publishes; it notes its arguments in `calls`."""
    program = folder / name
    program.write_text(f'#!/bin/sh\necho {name} "$@" >> {folder}/calls\n{script}\n')
    program.chmod(0o755)


DIGEST = "sha256:" + "0123456789abcdef" * 4
DOCKER = f"""for each; do case $before in --metadata-file)
echo '{{"containerimage.digest": "{DIGEST}"}}' > "$each";; esac; before=$each; done"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """docker, helm and cosign that do nothing but note how they are called."""
    folder = tmp_path / "tools"
    folder.mkdir()
    tool(folder, "docker", DOCKER)
    tool(folder, "helm", f"echo Digest: {DIGEST} >&2")
    tool(folder, "cosign", "")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HELM", str(folder / "helm"))
    return folder


def test_what_is_pushed_is_signed_by_its_digest(tools: Path, tmp_path: Path) -> None:
    output = tmp_path / "release"
    output.mkdir()
    for name in (f"quorate-{VERSION}.tgz", f"quorate-{VERSION}.whl", release_files.SUMS):
        (output / name).write_bytes(b"")
    release_images.images("Registry.example.org/Owner", output)
    release_images.push_chart("Registry.example.org/Owner", output)
    release_images.sign(output)
    calls = (tools / "calls").read_text().splitlines()
    builds = [line for line in calls if line.startswith("docker buildx build")]
    assert len(builds) == len(release_images.IMAGES)
    assert all("--platform linux/amd64,linux/arm64" in line and "--push" in line for line in builds)
    names = [*release_images.IMAGES.values(), "charts/quorate"]
    for name in names:
        reference = f"registry.example.org/owner/{name}@{DIGEST}"
        assert f"cosign sign --yes {reference}" in calls
    attested = [line for line in calls if line.startswith("cosign attest")]
    assert len(attested) == len(release_images.IMAGES)
    signed = [line.split()[-1] for line in calls if line.startswith("cosign sign-blob")]
    assert {Path(each).name for each in signed} == {path.name for path in output.iterdir()} - {
        release_images.PUSHED
    }


def test_a_step_that_fails_ends_the_release(tools: Path, tmp_path: Path) -> None:
    tool(tools, "docker", "exit 3")
    with pytest.raises(release_steps.ReleaseError, match="status 3: docker buildx build"):
        release_images.images("registry.example.org", tmp_path)
    assert not (tmp_path / release_images.PUSHED).exists()


def test_a_chart_that_is_not_packaged_is_not_pushed(tools: Path, tmp_path: Path) -> None:
    with pytest.raises(release_steps.ReleaseError, match="poe release-chart"):
        release_images.push_chart("registry.example.org", tmp_path)


def test_the_targets_exist() -> None:
    stages = re.findall(r"^FROM .* AS (\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert release_images.IMAGES.keys() <= set(stages)


def test_a_missing_tool_is_named() -> None:
    with pytest.raises(release_steps.ReleaseError, match="no-such-tool is not installed"):
        release_steps.run("no-such-tool")
