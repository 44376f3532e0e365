"""The command `quorate configs`."""
