"""The protocol: KIP-595, KIP-630, KIP-853 and KIP-996 as a pure state machine.

    node = RaftNode(config, initial, random, now_ms)
    node.handle_request(request_id, request, now_ms)     # or any other input
    for output in node.take_outputs(): ...               # do them, in order

Imports only `common`, and no clock, socket, file, thread or source of randomness.
"""

from quorate.raft.config import InitialState, RaftConfig, Randomness
from quorate.raft.logstate import LogState
from quorate.raft.node import RaftNode

__all__ = ["InitialState", "LogState", "RaftConfig", "RaftNode", "Randomness"]
