"""The kinds of agents: each implements the Runner port for a model, a program or a function."""
