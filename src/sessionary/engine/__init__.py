"""The loops and the ports: what moves."""
