"""Hostile input: every decoder and every RPC, given what no honest peer would send.

    python -m tests.hostile --count 1000000

A decoder may accept or refuse with its package's own exception; anything else is a failure, whose
input is kept under `kept/` and always run again.
"""
