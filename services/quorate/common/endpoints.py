"""The endpoints of nodes."""

from __future__ import annotations

from quorate.common.value import ordered_value

PORT_MAX = 65_535


@ordered_value
class Endpoint:
    """Where a replica listens: `name` is the listener's name, `port` 1 to 65535.

    Example:
        endpoint = quorate.Endpoint("CONTROLLER", "controller-2", 9093)
        print(endpoint)
    """

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{self.host}:{self.port}"
