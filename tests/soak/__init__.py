"""Faults on real processes: one at a time (`poe test-faults`), and mixed for long (`poe soak`)."""
