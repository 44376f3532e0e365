"""What the operator does next, decided without I/O from what it observed."""
