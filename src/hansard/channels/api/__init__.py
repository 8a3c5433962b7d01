"""The channel for programs: messages come in over HTTP, answers are kept or called back."""
