"""Kafka's messages as bytes and back: kio's for most, codecs of their own for the hot ones."""
