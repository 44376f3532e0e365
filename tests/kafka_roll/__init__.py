"""A quorum that rolls from Kafka's controllers to Quorate's and back, under load."""
