"""The TLS settings of a connection to ZooKeeper, as a value without dependencies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ZooKeeperTls:
    """PEM files. ca: the authorities that sign ZooKeeper's certificate. key_store: the client's key
    and certificate, None to present none. check_host: whether ZooKeeper's certificate must match
    its host name.
    """

    ca: Path
    key_store: Path | None = None
    check_host: bool = True
