"""The Kubernetes operator: keeps quorums in the state that their Quorum resources describe."""
