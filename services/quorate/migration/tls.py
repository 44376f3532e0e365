"""How a connection to ZooKeeper is encrypted, as a value that needs no library."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ZooKeeperTls:
    """PEM files. ca: the authorities of ZooKeeper's certificate. key_store: our own key and
    certificate, None to show none. check_host: whether its certificate must name its host.
    """

    ca: Path
    key_store: Path | None = None
    check_host: bool = True
