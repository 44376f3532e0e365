"""A connection to a controller over Kafka's protocol, with one request in flight.

It blocks: the two controllers work while the requests before are compared, and an event loop would
only cost processor time.
"""

from __future__ import annotations

import socket
from typing import Any, Final

from quorate.bridge.messages import schemas as s

from tests.kafka_scale.connection import request_frame
from tests.processes import HOST

CONNECT_S: Final = 10.0
RESPONSE_S: Final = 60.0
READ_BYTES: Final = 64 * 1024
LENGTH_BYTES: Final = 4


class BlockingConnection:
    """Raises OSError, which includes TimeoutError. source: the own address."""

    def __init__(self, port: int, source: str) -> None:
        self._socket = socket.create_connection((HOST, port), CONNECT_S, (source, 0))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(RESPONSE_S)
        self._correlation_id = 0

    def call(self, api_key: int, version: int, **fields: Any) -> Any:
        """The response to a request."""
        body = s.make(s.request_type(api_key, version), **fields)
        self.send(request_frame(api_key, version, body))
        return s.read_response(api_key, version, self.receive())[1]

    def send(self, frame: bytearray) -> None:
        """Send an encoded request, whose correlation id is set here."""
        self._correlation_id += 1
        frame[8:12] = self._correlation_id.to_bytes(4, "big")
        self._socket.sendall(frame)

    def receive(self) -> bytes:
        """The response to the last request, with its header. ConnectionResetError if the controller
        closes the connection instead.
        """
        received = b""
        length = LENGTH_BYTES
        while len(received) < length:
            data = self._socket.recv(READ_BYTES)
            if not data:
                raise ConnectionResetError("the controller closed the connection")
            received += data
            if len(received) >= LENGTH_BYTES:
                length = LENGTH_BYTES + int.from_bytes(received[:LENGTH_BYTES], "big")
        frame = received[LENGTH_BYTES:]
        correlation_id = int.from_bytes(frame[:4], "big")
        assert len(received) == length, "there is one request in flight"
        assert correlation_id == self._correlation_id, (correlation_id, self._correlation_id)
        return frame

    def close(self) -> None:
        self._socket.close()
