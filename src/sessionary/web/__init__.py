"""The HTTP interface: what a browser and other programs speak with."""
