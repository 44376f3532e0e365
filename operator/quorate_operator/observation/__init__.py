"""What a Quorum's objects and nodes say, and its status."""
