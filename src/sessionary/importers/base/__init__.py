"""What importers are made of.

An importer, ours or another's, uses `events` (the protocol that it implements, and what it yields),
`content`, `files`, `databases` and `archives`; `sessionary.importers` exports them for the importers of
other packages. `driver` and `session_merger` store what an importer yields.
"""
