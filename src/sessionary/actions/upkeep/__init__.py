"""Checks and numbers of a store: verify, statistics, health, overview."""
