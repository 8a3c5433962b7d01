"""The public Python interface: an open store, its sessions and their turns."""
