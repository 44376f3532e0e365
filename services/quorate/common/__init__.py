"""What all packages share: Kafka's error codes, identifiers and endpoints; declared settings."""
