"""The wire: the methods, their limits, and conversions of protobuf messages."""
