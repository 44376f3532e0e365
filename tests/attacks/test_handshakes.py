"""Handshakes that never end, and handshakes without a certificate, as many as one address can make,
at a controller's listener for Kafka's brokers.

The flood comes from 127.0.0.2 and the broker from 127.0.0.1.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quorate.bridge.listener.handshakes import PER_ADDRESS_MAX
from quorate.bridge.listener.server import LOG_INTERVAL_S
from quorate.bridge.messages import schemas as s

from tests.attacks.kafka_listener import ACTION, AUTHORIZER, BROKER, Lab, controller
from tests.attacks.test_kafka_listener import REFUSED, registration, versions
from tests.certificates import needs_openssl
from tests.integration.support import HOST, free_ports, until

pytestmark = needs_openssl

STRANGER = ("127.0.0.2", 0)
HALF_OPEN_MAX = 400
ROUNDS = 30


@contextmanager
def flood(lab: Lab) -> Iterator[None]:
    """Half-open handshakes, HALF_OPEN_MAX at a time, and whole ones that show no certificate."""
    is_over = threading.Event()

    def half_open() -> None:
        held: list[socket.socket] = []
        while not is_over.is_set():
            with contextlib.suppress(OSError):
                made = socket.create_connection((HOST, lab.port), 5, source_address=STRANGER)
                made.sendall(b"\x16\x03\x01\x02\x00")
                held.append(made)
            if len(held) > HALF_OPEN_MAX:
                held.pop(0).close()
            time.sleep(0.001)
        for each in held:
            each.close()

    def whole() -> None:
        context = ssl.create_default_context(cafile=lab.authority[0])
        while not is_over.is_set():
            with contextlib.suppress(OSError):
                made = socket.create_connection((HOST, lab.port), 5, source_address=STRANGER)
                with made, context.wrap_socket(made, server_hostname=HOST) as opened:
                    opened.recv(1)

    threads = [threading.Thread(target=each) for each in (half_open, whole, whole)]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        is_over.set()
        for each in threads:
            each.join(20)


def metric(port: int, name: str) -> float:
    with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=20) as page:
        lines = page.read().decode().splitlines()
    (line,) = [line for line in lines if line.startswith(name)]
    return float(line.rpartition(" ")[2])


def test_a_flood_of_handshakes_keeps_no_broker_out(tmp_path: Path) -> None:
    (http,) = free_ports(1)
    settings = {**AUTHORIZER, "quorate.http.listener": f"{HOST}:{http}"}
    with controller(tmp_path, "SSL", **settings) as lab:
        lab.allow("User:CN=broker", ACTION)
        broker = lab.asker("broker")
        until("the ACL holds", lambda: int(broker.fetch(replica=BROKER).error_code) != REFUSED)
        most, began = 0.0, time.monotonic()
        with flood(lab):
            until(
                "handshakes give way",
                lambda: metric(http, "quorate_kafka_closed_connections_total") > PER_ADDRESS_MAX,
            )
            # What is connected goes on, and brokers that connect anew are let in each time.
            assert int(broker.ask(s.BROKER_REGISTRATION, registration()).error_code) == 0
            for _ in range(ROUNDS):
                asker = lab.asker("broker")
                assert int(asker.ask(s.API_VERSIONS, versions()).error_code) == 0
                asker.close()
                most = max(most, metric(http, "quorate_kafka_handshakes"))
        assert most <= PER_ADDRESS_MAX + 1
        broker.close()
        said = lab.node.said()
        line = f"of {STRANGER[0]} is closed: {PER_ADDRESS_MAX} handshakes of its address"
        assert 1 <= said.count(line) <= 1 + (time.monotonic() - began) / LOG_INTERVAL_S
        assert f"the connection of {HOST} is closed" not in said
        assert said.count("leads epoch") == 1
        assert lab.node.stop() == 0
