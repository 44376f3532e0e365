"""`quorate bench`: measures a quorum with the same workloads as its peers.

`load` generates load and measures latencies, `quorum` provides the quorum, `workloads` defines W1
to W9, `floors` measures the limits of the machine, and `report` prints the results.
"""
