"""A replicated key-value store on `quorate.Node`, with a server for lines of text in each process.

    python key_value_store.py create 1 9001 127.0.0.1:9091 127.0.0.1:9092 127.0.0.1:9093
    python key_value_store.py serve  1 9001 127.0.0.1:9091 127.0.0.1:9092 127.0.0.1:9093
    python key_value_store.py serve  2 9002 127.0.0.1:9091 127.0.0.1:9092 127.0.0.1:9093
    python key_value_store.py serve  3 9003 127.0.0.1:9091 127.0.0.1:9092 127.0.0.1:9093

The arguments are the node id, the port of the server, and the addresses of the nodes 1, 2 and 3.
Create the quorum once, with node 1; the others join it. `put colour blue` and `get colour` work at
every node, are linearizable, and survive the loss of any one of the three.
"""

import asyncio
import sys
from collections.abc import Sequence

import quorate

CLUSTER = "Zk9tB2VQT2mVd1u4c0Jq3w"


class Store(quorate.StateMachine):
    def __init__(self) -> None:
        self.values: dict[bytes | None, bytes | None] = {}

    def apply(self, batch: Sequence[quorate.Record]) -> None:
        self.values.update((record.key, record.value) for record in batch)

    def restore(self, snapshot: quorate.StateSnapshot) -> None:
        self.values = {record.key: record.value for batch in snapshot for record in batch}


async def answer(node: quorate.Node, store: Store, line: bytes) -> bytes:
    match line.split():
        case [b"put", key, value]:
            return b"ok %d" % (await node.append([(key, value)])).base_offset
        case [b"get", key]:
            await node.read_index()
            return store.values.get(key) or b"(none)"
        case [b"leader"]:
            return b"%d" % (node.leader.id or 0)
    return b"put KEY VALUE, get KEY or leader"


async def serve(settings: dict[str, object], port: int) -> None:
    store = Store()
    async with quorate.Node(settings, store, request_timeout_ms=5_000) as node:

        async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while line := await reader.readline():
                try:
                    reply = await answer(node, store, line)
                except (quorate.ClientError, quorate.NodeError) as error:
                    reply = b"error: " + str(error).encode()
                writer.write(reply + b"\n")
            writer.close()

        # Not `async with`: since Python 3.12 its end waits until all clients have disconnected.
        await asyncio.start_server(converse, "127.0.0.1", port)
        await node.stopped()


def main(action: str, node_id: str, port: str, *addresses: str) -> None:
    settings: dict[str, object] = {
        "node.id": node_id,
        "listeners": f"CONTROLLER://{addresses[int(node_id) - 1]}",
        "controller.quorum.bootstrap.servers": addresses,
        "metadata.log.dir": f"key-value-store-{node_id}",
        "cluster.id": CLUSTER,
        "quorate.unformatted.format": node_id != "1",
        "controller.quorum.auto.join.enable": True,
    }
    if action == "create":
        quorate.format_storage(settings, CLUSTER, standalone=True)
    else:
        asyncio.run(serve(settings, int(port)))


if __name__ == "__main__":
    main(*sys.argv[1:])
