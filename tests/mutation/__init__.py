"""Tests, tested: a package with one guard removed has to be found out by the tests named for it.

    python -m tests.mutation run runtime            every mutant; writes runtime.json and runtime.md
    python -m tests.mutation run runtime NAME …     these alone
    python -m tests.mutation check runtime          whether every mutant still applies

A mutant is a change of the source text of one package (`tests.mutation.patching`), made
in a temporary copy of it. The tests named for the mutant run in a process of their own that imports
the copy, until one fails. Before, the same tests pass on the package as it is.
"""
