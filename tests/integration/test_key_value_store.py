"""The key-value store in the examples: three processes, of which one is killed."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import quorate

from tests.processes import HOST, Process, environment, free_ports, until

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "key_value_store.py"


class StoreProcess(Process):
    """One process of the store, in a folder of its own."""

    def __init__(self, folder: Path, node_id: int, port: int, addresses: list[str]) -> None:
        self.arguments = [str(node_id), str(port), *addresses]
        self.port = port
        command = (sys.executable, PROGRAM, "serve", *self.arguments)
        super().__init__(f"store {node_id}", folder / f"store-{node_id}.log", *command)
        self.working_directory = folder

    def create(self) -> None:
        command = [sys.executable, str(PROGRAM), "create", *self.arguments]
        subprocess.run(command, check=True, cwd=self.working_directory, env=environment())

    def ask(self, line: str) -> str:
        with socket.create_connection((HOST, self.port), timeout=10) as connection:
            connection.sendall(line.encode() + b"\n")
            return connection.makefile().readline().strip()

    def until_says(self, line: str, reply: str) -> None:
        """Ask again until the reply begins like that."""
        found = ""

        def asked() -> bool:
            nonlocal found
            with contextlib.suppress(OSError):
                found = self.ask(line)
            return found.startswith(reply)

        until(f"{line!r}: {reply!r}; {self.name} says {found!r}", asked)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[dict[int, StoreProcess]]:
    ports = free_ports(6)
    addresses = [f"{HOST}:{port}" for port in ports[:3]]
    stores = {each: StoreProcess(tmp_path, each, ports[each + 2], addresses) for each in (1, 2, 3)}
    stores[1].create()
    for store in stores.values():
        store.start()
    yield stores
    for store in stores.values():
        store.kill()


def test_the_store_survives_the_loss_of_its_leader(stores: dict[int, StoreProcess]) -> None:
    assert len(PROGRAM.read_text().splitlines()) <= 80
    stores[3].until_says("put colour blue", "ok ")
    for store in stores.values():
        store.until_says("get colour", "blue")
    leader = leader_at(stores[2])
    # Two of three voters are a majority only once all three have joined.
    others = [store for number, store in stores.items() if number != leader]
    for store in others:
        store.wait_until("it is a voter", lambda store=store: is_voter(stores[leader], store))
    stores[leader].kill()
    for number, store in enumerate(others):
        store.until_says(f"put colour green-{number}", "ok ")
        assert [other.ask("get colour") for other in others] == [f"green-{number}"] * 2
    stores[leader].start()
    stores[leader].until_says("get colour", "green-1")


def leader_at(store: StoreProcess) -> int:
    address = store.arguments[int(store.arguments[0]) + 1]
    with quorate.sync.Client([address]) as client:
        found = client.describe_quorum().response.leader.id
    assert found is not None
    return found


def is_voter(leader: StoreProcess, store: StoreProcess) -> bool:
    with quorate.sync.Client([leader.arguments[2]]) as client:
        voters = client.describe_quorum().response.voters
    return int(store.arguments[0]) in {voter.replica.id for voter in voters}
