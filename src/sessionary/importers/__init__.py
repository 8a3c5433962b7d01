"""Parsers for the conversations of other agents' tools, and one driver that imports them."""
