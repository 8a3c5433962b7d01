"""The loops, and the ports to platforms and agents."""
