"""Parsers for the message formats of model APIs."""
