"""Output as tables, JSON and plain fields. Nothing here calls the server."""
