"""Adapters for chat platforms: one package each, on one common base; none imports another."""
