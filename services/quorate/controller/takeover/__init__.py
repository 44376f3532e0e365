"""Whether a quorum of Kafka's controllers can be taken over, and with which settings.

Everything here only reads. `quorate takeover` is the command.
"""
