"""Spark's data source of metadata logs."""
