"""What the wire tests of the metadata share: Quorate's controllers at the golden endpoints."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

HOST = "127.0.0.1"
WAIT_S = 60.0


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("QUORATE_")}


def run(*arguments: str, status: int = 0) -> str:
    """What a command printed; it must end with `status`."""
    done = subprocess.run(
        [sys.executable, "-m", "quorate.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(),
    )
    assert done.returncode == status, (arguments, done.stdout, done.stderr)
    return done.stdout


class Controllers:
    """Controllers of one golden stage: their endpoints, directories and processes."""

    def __init__(self, golden: Path, stage: str, ids: tuple[int, ...], folder: Path) -> None:
        self.stage = stage
        self.folder = folder
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        ports: dict[int, int] = {}
        for described in re.findall(
            r"CurrentVoters: +(\[.*\])", (golden / "describe.txt").read_text()
        ):
            for voter in json.loads(described):
                ports[voter["id"]] = int(voter["endpoints"][0].rpartition(":")[2])
        self.ports = {node_id: ports[node_id] for node_id in ids}
        self.addresses = ",".join(f"{HOST}:{port}" for port in self.ports.values())

    def data(self, node_id: int) -> Path:
        return self.folder / f"controller-{node_id}"

    def taken_ports(self) -> list[int]:
        taken = []
        for port in self.ports.values():
            with socket.socket() as probe:
                if probe.connect_ex((HOST, port)) == 0:
                    taken.append(port)
        return taken

    def properties(self, node_id: int, **settings: object) -> Path:
        path = self.folder / f"{node_id}.properties"
        given = {
            "process.roles": "controller",
            "node.id": node_id,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://{HOST}:{self.ports[node_id]}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.quorum.bootstrap.servers": self.addresses,
            "log.dirs": self.data(node_id),
            **settings,
        }
        path.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        return path

    def start(self, **settings: object) -> None:
        for node_id in self.ports:
            properties = self.properties(node_id, **settings)
            with (self.folder / f"{node_id}.log").open("ab") as output:
                self.processes[node_id] = subprocess.Popen(
                    [sys.executable, "-m", "quorate.cli.main", "controller", str(properties)],
                    stdout=output,
                    stderr=output,
                    env=environment(),
                )

    def said(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.log")))

    def wait_active(self) -> None:
        """Until one of them is the active controller."""
        deadline = time.monotonic() + WAIT_S
        while "active controller in epoch" not in self.said():
            assert time.monotonic() < deadline, self.said()
            for node_id, process in self.processes.items():
                assert process.poll() is None, (node_id, self.said())
            time.sleep(0.2)

    def stop(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for node_id, process in self.processes.items():
            assert process.wait(30) == 0, (node_id, self.said())
        self.processes = {}

    def kill(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
