"""Hermes Agent: its database, the gateway's transcripts, and the web interface's sessions."""
