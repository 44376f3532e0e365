"""A controller within the program of a user, with a state machine that replays the log."""
