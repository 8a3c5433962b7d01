"""Deleting for good: purge, prune, erasure of a person, secrets; and packing old logs."""
