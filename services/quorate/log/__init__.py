"""The metadata log on disk."""
