"""The metadata logs of stopped replicas, of Quorate and of Kafka: reading and checking them."""
