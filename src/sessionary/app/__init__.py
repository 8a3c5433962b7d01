"""The composition root: settings in, a running server or engine out."""
