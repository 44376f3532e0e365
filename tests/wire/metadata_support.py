"""What the wire tests share: controllers of Quorate and of Kafka on the same directories."""

from __future__ import annotations

import errno
import json
import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from tests.integration.support import Quorum, quorate
from tests.kafka import KAFKA_4_3, KafkaNode, copy_writable, missing
from tests.processes import HOST, listens, until

WAIT_S = 60.0
COMMAND_TIMEOUT_S = 120.0
LOG = "__cluster_metadata-0"


def run(*arguments: object, status: int = 0) -> str:
    """What a command printed; it must end with `status`."""
    ran = quorate(*arguments, timeout_s=COMMAND_TIMEOUT_S)
    assert ran.status == status, (arguments, ran)
    return ran.out


def golden_ports(golden: Path) -> dict[int, int]:
    """The ports of the controllers, as the log names them."""
    text = (golden / "describe.txt").read_text()
    return {
        voter["id"]: int(voter["endpoints"][0].rpartition(":")[2])
        for described in re.findall(r"CurrentVoters: +(\[.*\])", text)
        for voter in json.loads(described)
    }


@contextmanager
def held(ports: Iterable[int]) -> Iterator[None]:
    """Keep outgoing connections off these ports, which are in the kernel's ephemeral range.

    A socket that is bound and does not listen keeps no server from listening there.
    """
    with ExitStack() as sockets:
        for port in ports:
            each = sockets.enter_context(socket.socket())
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            until(f"port {port} is free", partial(_binds, each, port), WAIT_S)
        yield


def _binds(each: socket.socket, port: int) -> bool:
    try:
        each.bind((HOST, port))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    return True


def check_free(*ports: int) -> None:
    """Skip the test where something listens on the endpoints that the log names."""
    if taken := [port for port in ports if listens(port)]:
        missing(f"the golden endpoints {taken} are in use on this machine")


class GoldenQuorum(Quorum):
    """Controllers on copies of one golden stage, at the endpoints that its log names."""

    def __init__(
        self, golden: Path, stage: str, ids: tuple[int, ...], folder: Path, **settings: object
    ) -> None:
        self.stage = stage
        ports = golden_ports(golden)
        check_free(*(ports[node_id] for node_id in ids))
        super().__init__(folder, ids, [ports[node_id] for node_id in ids], **settings)
        for node in self.nodes.values():
            copy_writable(golden / stage / f"controller-{node.id}", node.data)
            node.configure(
                {
                    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                    "metadata.log.dir": None,
                    "log.dirs": node.data,
                }
            )

    def start(self) -> None:
        """Start all, until one of them is the active controller."""
        for node in self.nodes.values():
            node.start()

        def is_active() -> bool:
            assert all(node.is_alive for node in self.nodes.values()), self.said()
            return "active controller in epoch" in self.said()

        until("one is active", is_active, WAIT_S)


def kafka_controller(
    folder: Path, node_id: int, port: int, data: Path, servers: str, **settings: object
) -> KafkaNode:
    """A controller of Kafka 4.3 on a directory that is there."""
    return KafkaNode(
        folder,
        KAFKA_4_3,
        {
            "process.roles": "controller",
            "node.id": node_id,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CONTROLLER://{HOST}:{port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.quorum.bootstrap.servers": servers,
            "log.dirs": data,
            **settings,
        },
    )
