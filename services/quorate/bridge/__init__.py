"""The bridge to Kafka's own brokers and tools, over Kafka's protocol.

`server` receives the requests that brokers in ZooKeeper mode and in KRaft mode send to a
controller, and `bridge` answers them: `replication` the Fetches, `exchange` the others, whose
conversions are in `lifecycle`, `forwarding` and `direct`. `quorum_requests` answers what the
metadata controller does not answer alone. `sasl` authenticates connections with the `mechanisms`,
`oauth` validates bearer tokens, `tokens` serves delegation tokens, and `quotas` limits the
partitions that clients create and delete. `propagation` sends brokers
in ZooKeeper mode what their own controller would have sent (`control_requests` builds the requests,
`channels` delivers them). This package contains no metadata logic: requests are converted to those
of `metadata.requests` and processed like all others.

`schemas` is the only module that loads kio, the library with Kafka's messages, and `oauth` the only
one that loads PyJWT, which the extra `oauth` installs.

Source: KIP-866, "ZK Broker", "Forwarding", "Controller RPCs"; KIP-590 (Envelope), KIP-595 (Fetch),
KIP-630 (FetchSnapshot).
"""

import sys

# kio registers strategies with Hypothesis if that is installed, as it is for tests. This would take
# a third of the start of a controller.
if "hypothesis" not in sys.modules:
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        import kio.static.primitive  # noqa: F401
    finally:
        del sys.modules["hypothesis"]
