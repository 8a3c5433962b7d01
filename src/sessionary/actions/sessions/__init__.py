"""Sessions: routing to them, appending, reading, listing and changing them."""
