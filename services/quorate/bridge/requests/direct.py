"""Requests that only a client that connects to a controller sends (KIP-919): the table.

Brokers answer these requests themselves, and do not forward them.
"""

from __future__ import annotations

from typing import Final

from quorate.bridge.messages import schemas as s
from quorate.bridge.requests import cluster, descriptions
from quorate.bridge.requests.exchange import Exchange, in_one
from quorate.metadata import requests as r

DIRECT: Final[dict[int, Exchange]] = {
    s.DESCRIBE_CLUSTER: Exchange(
        cluster.decode_describe_cluster,
        cluster.encode_describe_cluster_response,
        cluster.describe_cluster_error_response,
    ),
    s.DESCRIBE_CONFIGS: Exchange(
        descriptions.decode_describe_configs,
        descriptions.encode_describe_configs_response,
        descriptions.describe_configs_error_response,
    ),
    s.DESCRIBE_USER_SCRAM_CREDENTIALS: Exchange(
        descriptions.decode_describe_scram,
        descriptions.encode_describe_scram_response,
        in_one(r.Refused),
    ),
    s.DESCRIBE_ACLS: Exchange(
        descriptions.decode_describe_acls,
        descriptions.encode_describe_acls_response,
        descriptions.describe_acls_error_response,
    ),
}
