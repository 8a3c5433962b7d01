"""One folder per platform. Each speaks one outside language, and none imports another."""
