"""What runs in the pod of a fenced member in place of the controller: nothing but its probes.

The pod keeps its volume, so that somebody can examine it. It is alive, and never ready. This module
imports only the standard library, because pods use it.
"""

from __future__ import annotations

import signal
import socket
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import FrameType

REQUEST_TIMEOUT_S = 5.0


class FenceHandler(BaseHTTPRequestHandler):
    """Answers the probes. The base class finds the method by its name."""

    timeout = REQUEST_TIMEOUT_S

    def do_GET(self) -> None:
        is_alive = self.path == "/healthz"
        body = b"fenced\n"
        self.send_response(HTTPStatus.OK if is_alive else HTTPStatus.SERVICE_UNAVAILABLE)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing: probes come every few seconds."""


class FenceServer(ThreadingHTTPServer):
    """Listens on all addresses, of IPv6 and IPv4 where the machine has both."""

    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def serve(port: int) -> int:
    """Answer probes until SIGTERM or SIGINT, and return the exit status."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(0)

    # Process 1 of a container ignores signals for which it has no handler.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    with FenceServer(("", port), FenceHandler) as server:
        server.daemon_threads = True  # a connection that stays open does not delay the end
        print("this member is fenced: its controller does not run", file=sys.stderr)
        server.serve_forever()
    return 0
