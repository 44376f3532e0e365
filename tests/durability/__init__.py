"""Power failures, killed processes and lost sectors under the real code of `quorate.log`.

    python -m tests.durability power --count 1000      random work, cut off at any step
    python -m tests.durability sectors --count 1000    and synced sectors damaged afterwards
    python -m tests.durability.mutants run             the log without one guard has to be found out

A seed decides everything: the writer has no thread here (`stepping.py`). The disk knows what fsync
means (`disk.py`); what a replica does with its log, and what it may never lose, is in `replica.py`.
"""
