"""Messages with a length in front of each, on the event loop's sockets."""
