"""Hansard: the session layer for AI agents."""

__version__ = "0.1.0"
