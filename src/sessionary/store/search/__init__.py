"""The full-text index: derived from the log, fed after each commit, deletable at any time."""
