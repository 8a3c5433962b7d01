"""Benchmarks: the product, the stores it replaces and the floor under both, in one run."""
