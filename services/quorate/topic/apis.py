"""The Kafka APIs that the listener for producers and consumers serves.

Versions end where Kafka's messages begin to name topics by their ids (KIP-516): the topic has none.

Source: Kafka's protocol guide.
"""

from __future__ import annotations

from typing import Final

from quorate.bridge.messages import schemas as s

PRODUCE: Final = 0
LIST_OFFSETS: Final = 2
METADATA: Final = 3
INIT_PRODUCER_ID: Final = 22

SERVED: Final[s.Served] = {
    PRODUCE: (3, 9),
    s.FETCH: (4, 12),
    LIST_OFFSETS: (1, 7),
    METADATA: (0, 9),
    s.SASL_HANDSHAKE: s.SERVED[s.SASL_HANDSHAKE],
    s.API_VERSIONS: s.SERVED[s.API_VERSIONS],
    INIT_PRODUCER_ID: (0, 4),
    s.SASL_AUTHENTICATE: s.SERVED[s.SASL_AUTHENTICATE],
}
"""The served requests."""
