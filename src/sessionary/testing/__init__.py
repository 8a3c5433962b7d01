"""Test suites and fakes for authors of adapters and runners; install `sessionary[testing]`."""
