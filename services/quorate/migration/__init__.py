"""KIP-866: the migration of a cluster from ZooKeeper to the quorum.

`znodes` has the tree as values, `entities` the names and codes in ZooKeeper's texts. `reading`
converts znodes to metadata records, `copying` batches them into one transaction, `verification`
compares the two sides, and `writing` converts changes of the image to write `operations`.
`planning` reports what a migration would do. `driver` is the state machine of the migration.
`zookeeper` is the adapter to a server, and `zk_migration_client` a controller's session with it.

All modules but `zookeeper` and `zk_migration_client` are pure.
"""
