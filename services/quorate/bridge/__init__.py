"""The bridge to Kafka's own brokers, in the protocol that they speak, for a cluster that migrates.

`server` answers what they send to a controller, in ZooKeeper mode and in KRaft mode: `replication`
the Fetches, `exchange` the rest, whose forms are in `lifecycle` and `forwarding`. `propagation`
sends those in ZooKeeper mode what a controller of theirs would have (`telling` says what,
`channels` sees that it arrives). No rule of the metadata stands here: requests become those of
`metadata.requests` and go the way of all others.

`schemas` is the only module that knows the library with Kafka's messages, kio, which the extra
`migration` installs.

Source: KIP-866, "ZK Broker", "Forwarding", "Controller RPCs"; KIP-590 (Envelope), KIP-595 (Fetch),
KIP-630 (FetchSnapshot).
"""
