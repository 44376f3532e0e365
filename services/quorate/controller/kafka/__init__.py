"""The listener for Kafka's nodes and tools: its settings, its security, and when it is open."""
