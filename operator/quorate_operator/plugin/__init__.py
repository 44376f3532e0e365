"""The subcommands of `kubectl quorate`."""
