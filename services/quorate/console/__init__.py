"""The web console: who votes, who leads, who lags, what changed, and the few things to do about it.

`state` is pure: it turns what controllers answer into what there is to see. `watch` asks them.
`charts` and `page` show it (nicegui). It works while there is no leader, and says why.
"""
