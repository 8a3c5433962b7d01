"""The public names, each once: `sessionary` gives them out, and loads the modules here when a name is first used."""
