"""Suites and fakes for whoever writes an adapter or a runner; install `sessionary[testing]`."""
