"""What the tests of Hansard, of its extensions and of its users' programs share."""
