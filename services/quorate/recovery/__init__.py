"""What is left to do when the quorum's own means end: tools for a stopped controller's directory.

`examine` looks and changes nothing, `choice` says what follows from what was seen (pure),
`change` does what all of them do (backup, forced records, reports), `lost_majority`, `endpoints`
and `replica` are one remedy each, `staged` lets a controller apply a remedy when it starts.
"""
