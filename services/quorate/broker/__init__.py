"""The broker: partition replicas controlled by the metadata log (KIP-841)."""
