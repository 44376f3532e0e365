"""The cluster's metadata, sans-IO: the image that records make, and the controller that makes them.

Nothing here reads a clock or does I/O: a time is an integer in milliseconds that the caller gives,
new topic ids come from an injected source of randomness.
"""
