"""The deterministic simulation: whole clusters of the pure state machine on one seeded scheduler.

    python -m tests.simulation run --seeds 1000
    python -m tests.simulation replay --seed 7 --trace
    python -m tests.simulation shrink --seed 7

The protocol under test is `quorate.raft` itself; disks, network, clocks and clients are simulated.
"""
