"""The wire: protobuf conversions, servicers, calls to peers, the client library.

gRPC's core logs to stderr unless this is disabled before it is loaded. This package reports errors
as exceptions instead.
"""

import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")
