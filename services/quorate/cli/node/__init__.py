"""Commands that run a node, and prepare what it runs on."""
