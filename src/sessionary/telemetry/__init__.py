"""OpenTelemetry, both ways: the spans of others become sessions, our own go to a collector."""
