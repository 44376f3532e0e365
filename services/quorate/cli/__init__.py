"""The quorate command."""
