"""The TLS settings of a connection to ZooKeeper, as a value without dependencies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ZooKeeperTls:
    """PEM files."""

    ca: Path
    """The authorities that sign ZooKeeper's certificate."""
    key_store: Path | None = None
    """The client's key and certificate, None to present none."""
    check_host: bool = True
    """Whether ZooKeeper's certificate must match its host name."""
