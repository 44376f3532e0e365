"""The Kubernetes API, and what its objects say."""
