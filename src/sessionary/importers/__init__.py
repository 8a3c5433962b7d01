"""Other agents' records: one file per format, one driver for all of them."""
