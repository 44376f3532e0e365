"""The simulation, tested: the protocol with one guard removed has to be found out.

    python -m tests.simulation.mutants run            every mutant; writes the table in README.md
    python -m tests.simulation.mutants run NAME …     these alone
    python -m tests.simulation.mutants check          whether every mutant still applies

A mutant is a change of the source text of `quorate.raft`, made while it is imported, in a process
of its own (`patching.py`). It is killed by the first seed whose run breaks
an invariant; one that lives is a hole in the invariants or in the mix of faults. The catalogue is
in `catalogue.py`, the measured table in `README.md`.
"""
