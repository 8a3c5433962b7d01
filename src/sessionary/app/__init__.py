"""The composition root: configuration in, an open house out."""
