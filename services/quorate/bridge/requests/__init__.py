"""The requests of Kafka's nodes and tools, converted to those of Quorate and back."""
