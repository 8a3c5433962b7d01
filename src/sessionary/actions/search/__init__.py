"""Search for messages: candidates from the index, hits from the log."""
