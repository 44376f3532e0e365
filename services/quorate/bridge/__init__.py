"""The bridge to Kafka's own brokers, over Kafka's protocol, during and after a migration.

`server` receives the requests that brokers in ZooKeeper mode and in KRaft mode send to a
controller, and `bridge` answers them: `replication` the Fetches, `exchange` the others, whose
conversions are in `lifecycle` and `forwarding`. `sasl` authenticates connections with the
`mechanisms`, `oauth` validates bearer tokens, and `tokens` serves delegation tokens. `propagation`
sends brokers in ZooKeeper mode what their own controller would have sent (`control_requests` builds
the requests, `channels` delivers them). This package contains no metadata logic: requests are
converted to those of `metadata.requests` and processed like all others.

`schemas` is the only module that loads kio, the library with Kafka's messages, and `oauth` the only
one that loads PyJWT, which the extra `oauth` installs.

Source: KIP-866, "ZK Broker", "Forwarding", "Controller RPCs"; KIP-590 (Envelope), KIP-595 (Fetch),
KIP-630 (FetchSnapshot).
"""
