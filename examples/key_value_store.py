"""A replicated key-value store on `quorate.Node`, with a server for lines of text in each process.

    python key_value_store.py create|serve 1 9001 127.0.0.1:9091 127.0.0.1:9092 127.0.0.1:9093

The arguments are the node id, the port of the server, and the addresses of the nodes 1, 2 and 3.
Create the quorum once, with node 1, then serve; nodes 2 and 3 join it. `put colour blue` and `get
colour` work at every node, are linearizable, and survive the loss of any one of the three.
"""

import asyncio
import sys
from collections.abc import Sequence

import quorate

CLUSTER = "Zk9tB2VQT2mVd1u4c0Jq3w"
Values = dict[bytes | None, bytes | None]


class Store(quorate.StateMachine):
    def __init__(self) -> None:
        self.values: Values = {}

    def apply(self, batch: Sequence[quorate.Record]) -> None:
        self.values.update((record.key, record.value) for record in batch)

    def snapshot(self) -> list[bytes]:
        return [chunk or b"" for item in self.values.items() for chunk in item]

    def restore(self, snapshot: quorate.StateSnapshot) -> None:
        values: Values = dict(zip(snapshot.state, snapshot.state, strict=True))
        values.update((record.key, record.value) for batch in snapshot for record in batch)
        self.values = values


async def answer(node: quorate.Node, store: Store, line: bytes) -> bytes:
    match line.split():
        case [b"put", key, value]:
            return b"ok %d" % (await node.append([(key, value)])).base_offset
        case [b"get", key]:
            await node.read_index()
            return store.values.get(key) or b"(none)"
    return b"put KEY VALUE or get KEY"


async def serve(settings: dict[str, object], port: int) -> None:
    async with quorate.Node(settings, store := Store(), request_timeout_ms=5_000) as node:

        async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while line := await reader.readline():
                try:
                    writer.write(await answer(node, store, line) + b"\n")
                except (quorate.ClientError, quorate.NodeError) as error:
                    writer.write(b"error: %s\n" % str(error).encode())
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
        level = {"application.version": 1}  # for snapshots of Store
        quorate.format_storage(settings, CLUSTER, standalone=True, features=level)
    else:
        asyncio.run(serve(settings, int(port)))


if __name__ == "__main__":
    main(*sys.argv[1:])
