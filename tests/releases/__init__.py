"""What release 0.1.0 (commit 62f1c79) left behind, for tests of upgrades.

`0.1.0.tar.gz` has directories of its controllers, `0.1.0.json` what they contain, and
`0.1.0.interfaces.json` what users could name: settings, commands, and the schema of a Quorum.
`python -m tests.releases` writes all three; the tests read them and need no history of git.
"""
