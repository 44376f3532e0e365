"""`quorate bench`: a quorum measured as its peers are.

`load` makes the load and takes its times, `quorum` gives it a quorum, `workloads` says what W1 to
W9 are, `floors` measures what the machine itself allows, `report` prints.
"""
