"""A replica in memory: a disk, and a driver of one `RaftNode` on it.

The scenarios and the simulation derive their nodes from it. They decide how messages travel, when
time passes and when a sync ends.
"""
