"""The verbs: plain functions of a transaction; rules and store, no loops."""
