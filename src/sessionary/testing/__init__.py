"""What the tests of Sessionary, of its extensions and of its users' programs share."""
