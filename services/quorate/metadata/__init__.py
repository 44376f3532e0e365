"""The cluster's metadata, sans-IO: the image built from records, and the controller logic.

Nothing here reads a clock or does I/O. The caller passes each time as an integer in milliseconds,
and injects the source of randomness for new ids.
"""
