"""A turn: how it begins, what it is given, how it runs and is recorded, and what it costs."""
