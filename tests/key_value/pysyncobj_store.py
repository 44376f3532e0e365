"""The key-value store of examples/key_value_store.py on PySyncObj.

    python pysyncobj_store.py serve 1 9001 127.0.0.1:9091 127.0.0.1:9092 127.0.0.1:9093

The arguments and the lines are the same. PySyncObj reads locally and offers no linearizable read,
so `get` is a replicated call, which takes its turn in the log; `peek` is the local read.
"""

import socketserver
import sys

import pysyncobj

TIMEOUT_S = 5
REASONS = {number: name for name, number in vars(pysyncobj.FAIL_REASON).items() if name.isupper()}
OPTIONS = {
    "appendEntriesUseBatch": False,  # send at once, not each 100 ms
    "connectionRetryTime": 0.5,  # the default, 5 s, is longer than most faults here
    "leaderFallbackTimeout": 3.0,  # by default a leader without a majority stays one for 30 s
}


class Store(pysyncobj.SyncObjConsumer):
    def __init__(self):
        super().__init__()
        self.values = {}

    @pysyncobj.replicated
    def put(self, key, value):
        self.values[key] = value
        return self._syncObj.raftLastApplied + 1  # the index of the entry that is being applied

    @pysyncobj.replicated
    def get(self, key):
        return self.values.get(key)


def answer(node, store, addresses, line):
    match line.decode().split():
        case ["put", key, value]:
            return f"ok {store.put(key, value, sync=True, timeout=TIMEOUT_S)}"
        case ["get", key]:
            return store.get(key, sync=True, timeout=TIMEOUT_S) or "(none)"
        case ["peek", key]:
            return store.values.get(key) or "(none)"
        case ["leader"]:
            leader = node.getStatus()["leader"]
            return str(addresses.index(leader.id) + 1 if leader else 0)
    return "put KEY VALUE, get KEY, peek KEY or leader"


def main(action, node_id, port, *addresses):
    own = addresses[int(node_id) - 1]
    files = {"journalFile": f"journal-{node_id}", "fullDumpFile": f"dump-{node_id}"}
    others = [each for each in addresses if each != own]
    store, conf = Store(), pysyncobj.SyncObjConf(**files, **OPTIONS)
    node = pysyncobj.SyncObj(own, others, conf, consumers=[store])

    class Conversation(socketserver.StreamRequestHandler):
        def handle(self):
            for line in self.rfile:
                try:
                    reply = answer(node, store, addresses, line)
                except pysyncobj.SyncObjException as error:
                    reply = f"error: {REASONS.get(error.errorCode, error.errorCode)}"
                self.wfile.write(reply.encode() + b"\n")

    socketserver.ThreadingTCPServer.allow_reuse_address = True
    socketserver.ThreadingTCPServer.daemon_threads = True
    socketserver.ThreadingTCPServer(("127.0.0.1", int(port)), Conversation).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
