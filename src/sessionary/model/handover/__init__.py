"""A conversation in the words of another tool, so that it can go on there."""
