"""Offline recovery tools for a controller's directory, for failures that the quorum cannot repair.

`examine` reads a directory and changes nothing. `choice` draws conclusions from examinations
(pure). `change` holds the common steps (backup, forced records, reports). `lost_majority`,
`endpoints`, `epochs` and `replica` are one remedy each. `staged` lets a controller apply a remedy
when it starts.
"""
