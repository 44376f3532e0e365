"""SASL at the listener for Kafka's protocol: states, mechanisms, bearer and delegation tokens."""
