"""The names that Hermes programs import, over a Hansard store: `state`, `session`, `config`."""
