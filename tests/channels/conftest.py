"""The store that the channels' tests run on; that both databases keep alike is the store suite's to say."""

from sessionary.testing.fixtures import store

__all__ = ["store"]
