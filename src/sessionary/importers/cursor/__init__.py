"""Cursor: its databases, the transcripts of its agents, and its command line."""
