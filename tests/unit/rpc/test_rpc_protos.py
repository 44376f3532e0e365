"""The proto files: all in them is explained, and the committed code is what they generate."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from tests.tools import protos

ROOT = Path(__file__).resolve().parents[3]
PROTO = ROOT / "proto"
TOOL = ROOT / "tests/tools/protos.py"


def test_every_message_field_value_and_method_has_a_comment(tmp_path: Path) -> None:
    target = tmp_path / "set.pb"
    files = protos.sources()
    assert files
    protos.protoc("--include_source_info", f"--descriptor_set_out={target}", *files)
    uncommented = []
    for file in FileDescriptorSet.FromString(target.read_bytes()).file:
        comments = {
            tuple(location.path): location.leading_comments.strip()
            for location in file.source_code_info.location
        }
        paths = {}
        for m, message in enumerate(file.message_type):
            for n, field in enumerate(message.field):
                paths[4, m, 2, n] = f"{message.name}.{field.name}"
        for e, enum in enumerate(file.enum_type):
            paths[5, e] = enum.name
            for n, value in enumerate(enum.value):
                paths[5, e, 2, n] = value.name
        for s, service in enumerate(file.service):
            for n, method in enumerate(service.method):
                paths[6, s, 2, n] = f"{service.name}.{method.name}"
        uncommented += [name for path, name in paths.items() if not comments.get(path)]
    assert uncommented == []


def run_tool(tool: Path, command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, tool, command], capture_output=True, text=True)


def test_the_generated_code_is_what_the_protos_generate() -> None:
    checked = run_tool(TOOL, "check")
    assert (checked.returncode, checked.stderr) == (0, "")


def test_stale_code_is_found_and_the_remedy_named(tmp_path: Path) -> None:
    shutil.copytree(PROTO, tmp_path / "proto")
    (tmp_path / "services/quorate").mkdir(parents=True)
    shutil.copytree(ROOT / "services/quorate/v1", tmp_path / "services/quorate/v1")
    tool = tmp_path / "tests/tools/protos.py"
    tool.parent.mkdir(parents=True)
    shutil.copy(TOOL, tool)
    protos.installed_generator()
    (tmp_path / "requirements").symlink_to(ROOT / "requirements")
    (tmp_path / "build").symlink_to(ROOT / "build")
    assert run_tool(tool, "check").returncode == 0

    raft = tmp_path / "proto/quorate/v1/raft.proto"
    raft.write_text(raft.read_text() + "message Added {}\n")
    (tmp_path / "services/quorate/v1/gone_pb2.py").touch()
    (tmp_path / "services/quorate/v1/common_pb2.pyi").unlink()
    checked = run_tool(tool, "check")
    assert checked.returncode == 1
    assert checked.stderr.splitlines() == [
        "quorate/v1/common_pb2.pyi is missing",
        "quorate/v1/gone_pb2.py has no source in proto/",
        "quorate/v1/raft_pb2.py is not what proto/ generates",
        "quorate/v1/raft_pb2.pyi is not what proto/ generates",
        "run: python tests/tools/protos.py generate",
    ]
    assert run_tool(tool, "generate").returncode == 0
    (tmp_path / "services/quorate/v1/gone_pb2.py").unlink()
    assert run_tool(tool, "check").returncode == 0
