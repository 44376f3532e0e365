"""Commands that print what a log contains."""
