"""Commands for backups, repairs, migrations and takeovers."""
