"""The HTTP interface for the workbench and for other programs."""
