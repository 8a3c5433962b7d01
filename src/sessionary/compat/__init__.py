"""Drop-in names for programs that were written for other systems."""
