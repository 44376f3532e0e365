"""The web console: shows a quorum's voters, leader, lags and events; can change voters and leader.

`state` is pure: it derives the displayed state from the responses of controllers. `watch` polls the
controllers. `charts` and `page` display the state (nicegui). The console works without a leader,
and then shows why there is none.
"""
