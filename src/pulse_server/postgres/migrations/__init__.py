"""Numbered .sql files and the runner that applies them."""
