"""Messages in the forms of models' interfaces, read as parts; values in, values out."""
