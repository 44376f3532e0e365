"""The wire: protobuf to values and back, servicers, the way to peers, the client library.

gRPC's core writes lines of its own to stderr unless it is told not to before it is loaded; errors
reach people through our exceptions.
"""

import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")
