"""Gemini CLI, and Qwen Code, which began as a copy of it."""
