"""The managers: the active controller's decisions about each kind of record."""
