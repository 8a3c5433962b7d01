"""What all importers share: the events they yield, the driver that stores them, and readers of common file formats."""
