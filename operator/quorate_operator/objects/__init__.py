"""A Quorum's Kubernetes objects, and what they are made of."""
