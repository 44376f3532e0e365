"""The records of applications as a topic of Kafka's protocol."""
