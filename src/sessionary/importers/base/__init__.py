"""What importers are made of.

An importer, ours or another's, uses `events` (the protocol that it implements, and what it yields),
`content`, `files`, `databases` and `archives`. `driver` and `session_merger` store what it yields.
"""
