"""The controller's part in a migration from ZooKeeper (KIP-866)."""
