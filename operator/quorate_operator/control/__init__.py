"""The control loop: what wakes it, and how it acts."""
