"""Numbered .sql files, or folders of them, and the runner that applies them."""
