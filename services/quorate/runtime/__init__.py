"""The asyncio driver of a raft node."""
