"""Attacks and faults that once succeeded, against real processes (`poe test-attacks`)."""
