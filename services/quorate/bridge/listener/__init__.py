"""The listener for Kafka's protocol: connections, TLS handshakes, and the server of requests."""
