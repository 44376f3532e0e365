"""Measurements that are commands, not tests: Quorate beside its peers."""
