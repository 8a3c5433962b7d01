"""Frozen values and pure rules; no I/O, no clock."""
