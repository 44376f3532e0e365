"""The bridge to Kafka's own brokers and tools, over Kafka's protocol.

From the top, each package uses those below it only:

- `bridge` decides what the listener of one controller serves.
- `peers` has this controller's own requests to nodes that speak Kafka's protocol; `propagation`
  sends brokers in ZooKeeper mode what their own controller would have sent.
- `requests` answers: `replication` the Fetches, `exchange` the others, whose conversions are in
  `lifecycle`, `forwarding` and `direct`; `quorum_requests` what the metadata controller does not
  answer alone; `quotas` limits the partitions that clients create and delete.
- `listener` accepts connections and passes their requests to an `Answerer`.
- `authentication` authenticates connections with SASL; `tokens` serves delegation tokens.
- `framing` has the frames of a connection, `messages` what is in them.

This package contains no metadata logic: requests are converted to those of `metadata.requests` and
processed like all others. `messages.schemas` is the only module that loads kio, the library with
Kafka's messages, and `authentication.oauth` the only one that loads PyJWT, which the extra `oauth`
installs.

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
