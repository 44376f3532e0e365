"""A well-behaved client and probes beside one attack after the other: see `__main__`."""
