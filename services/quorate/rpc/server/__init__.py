"""The server: servicers, authorization, throttling, and bounds on memory."""
