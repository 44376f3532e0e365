"""Requests that only a client that connects to a controller sends (KIP-919): the table.

Brokers answer these requests themselves, and do not forward them.
"""

from __future__ import annotations

from typing import Final

from quorate.bridge import cluster, descriptions
from quorate.bridge import schemas as s
from quorate.bridge.exchange import Exchange, in_one
from quorate.metadata import requests as r

DIRECT: Final[dict[int, Exchange]] = {
    s.DESCRIBE_CLUSTER: Exchange(
        cluster.describe_cluster, cluster.cluster_described, cluster.no_cluster
    ),
    s.DESCRIBE_CONFIGS: Exchange(
        descriptions.describe_configs,
        descriptions.configs_described,
        descriptions.no_configs_described,
    ),
    s.DESCRIBE_USER_SCRAM_CREDENTIALS: Exchange(
        descriptions.describe_scram, descriptions.scram_described, in_one(r.Refused)
    ),
    s.DESCRIBE_ACLS: Exchange(
        descriptions.describe_acls, descriptions.acls_described, descriptions.no_acls_described
    ),
}
