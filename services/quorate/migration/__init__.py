"""KIP-866: a cluster that ZooKeeper controls becomes one that the quorum controls.

`znodes` has the tree as values, `entities` the names and codes that ZooKeeper's text uses;
`reading` turns znodes into metadata records, `verification` finds where the two differ, `writing`
turns changes of the image into conditional writes; `driver` is the state machine of the migration,
`zookeeper` the one adapter that talks to a server.

Everything but the adapter is pure.
"""
