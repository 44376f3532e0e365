"""The broker: partition replicas that live by the metadata log (KIP-841)."""
