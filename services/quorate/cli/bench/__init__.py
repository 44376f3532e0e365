"""`quorate bench`: measures a quorum with the same workloads as its peers.

`load` generates load and measures latencies, `quorum` provides the quorum, `workloads` defines W1
to W9, `floors` measures the limits of the machine, and `report` prints the results.
"""

import os

# The benchmark starts processes while gRPC works. Its core reports each of them on stderr, whatever
# GRPC_VERBOSITY is, unless this is set before it is loaded.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
