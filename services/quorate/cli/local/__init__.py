"""Quorums of real processes on this machine."""
