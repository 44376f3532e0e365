"""Why a TLS handshake failed, in plain words, from the error texts of gRPC.

The client's texts name only faults that the client finds. A server that rejects a client closes the
connection, so gRPC reports the same for a client without TLS and for one with a wrong certificate.
"""

from __future__ import annotations

import re

PREFIX = "TLS handshake failed: "
CLOSED = (
    "the node closed the connection during the handshake: its listener may require TLS, or a "
    "client certificate of a CA that it trusts"
)

_VERIFY_FAILED = re.compile(r"CERTIFICATE_VERIFY_FAILED: ([^:]+)")
_NEVER_CONNECTED = "failed to connect to all addresses"
_CLOSED = re.compile(r"socket closed|connection reset|reset by peer", re.IGNORECASE)


def handshake_fault(details: str) -> str | None:
    """Return the cause if gRPC's text reports a failed handshake, else None."""
    if "WRONG_VERSION_NUMBER" in details:
        return f"{PREFIX}the listener does not use TLS"
    if rejected := _VERIFY_FAILED.search(details):
        return f"{PREFIX}the node's certificate was rejected: {rejected[1].strip()}"
    if "Hostname Verification Check failed" in details:
        return f"{PREFIX}the node's certificate does not contain the name or address in use"
    if _NEVER_CONNECTED in details and _CLOSED.search(details):
        return CLOSED
    return None


def is_handshake_fault(text: str) -> bool:
    """Whether `handshake_fault` returned this text."""
    return text.startswith(PREFIX) or text == CLOSED
