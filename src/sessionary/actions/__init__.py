"""Plain functions of a transaction: the rules applied to the store; no loops, no waiting."""
