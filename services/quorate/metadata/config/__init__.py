"""The types and definitions of dynamic configs."""
