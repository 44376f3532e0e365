"""The operator: keeps the quorums of a Kubernetes cluster as their Quorum resources say."""
