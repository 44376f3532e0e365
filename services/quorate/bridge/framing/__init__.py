"""Frames of Kafka's protocol on a connection, and the limits of those that are incomplete."""
