"""The command `quorate topics`."""
