"""Commands that describe and change a running quorum."""
