"""Kafka's record batches and control records, as views over bytes."""
