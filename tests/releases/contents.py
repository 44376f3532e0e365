"""The directories in `0.1.0.tar.gz`, and what 0.1.0 said that they contain."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RELEASE = "0.1.0"
ARCHIVE = HERE / f"{RELEASE}.tar.gz"
CONTENTS = HERE / f"{RELEASE}.json"
INTERFACES = HERE / f"{RELEASE}.interfaces.json"

PORTS = {1: 19193, 2: 19194, 3: 19195}
"""Of the quorum's controllers: the log has their endpoints. Tests choose no such ports."""
STATIC = 4
"""The node of a quorum of its own with `controller.quorum.voters`, at kraft.version 0."""


@dataclass(frozen=True)
class Directory:
    """A `metadata.log.dir` of 0.1.0.

    appended: the offset and value of each record that 0.1.0 acknowledged. metadata: what its
    `metadata-shell --json find` printed.
    """

    node_id: int
    path: Path
    cluster_id: str
    directory_id: str
    kraft_version: int
    voters: tuple[int, ...]
    appended: list[tuple[int, bytes]]
    metadata: dict[str, Any]


def unpack(folder: Path) -> dict[int, Directory]:
    """Unpack the archive; its directories by node."""
    # Not tarfile: before Python 3.11.4, the version of Debian 12 among them, it has no filters.
    subprocess.run(["tar", "-xz", "-C", str(folder), "-f", str(ARCHIVE)], check=True)
    found = json.loads(CONTENTS.read_text())
    return {
        entry["node_id"]: Directory(
            **entry
            | {
                "path": folder / f"node-{entry['node_id']}",
                "voters": tuple(entry["voters"]),
                "appended": [(offset, value.encode()) for offset, value in entry["appended"]],
            }
        )
        for entry in found["directories"]
    }
