"""This controller's own requests to nodes that speak Kafka's protocol."""
