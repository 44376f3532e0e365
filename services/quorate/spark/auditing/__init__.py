"""The rules of the audit, and what they compare."""
