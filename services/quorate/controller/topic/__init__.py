"""The listener for Kafka's producers and consumers."""
