"""The names that Hermes programs import, over a Sessionary store: `state`, `session`, `config`."""
