"""What the active controller sends to brokers in ZooKeeper mode."""
